package gguf

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// tiny is a file of every kind of value and two tensors.
func tiny() []byte {
	return build([]pair{
		{"general.architecture", "llama"},
		{"a.flag", true},
		{"a.count", uint32(7)},
		{"a.number", float32(0.5)},
		{"a.names", []string{"one", "", "three"}},
		{"a.scores", []float32{1, -2}},
		{"a.kinds", []int32{-1, 3}},
	}, []entry{
		{name: "m", shape: []uint64{32, 2}, of: Q8_0, content: []byte{1, 2, 3}},
		{name: "v", shape: []uint64{3}, of: F32, offset: 96, content: []byte{4, 5}},
	}, 108)
}

func TestParse(t *testing.T) {
	f, err := Parse(tiny())
	if err != nil {
		t.Fatal(err)
	}
	k := &keys{file: f}
	if k.text("general.architecture", "") != "llama" || !k.flag("a.flag", false) ||
		k.count("a.count", 0, 10) != 7 || k.number("a.number", 0) != 0.5 ||
		strings.Join(k.strings("a.names"), ",") != "one,,three" || k.numbers("a.scores")[1] != -2 ||
		k.numbers("a.kinds")[0] != -1 || k.number("absent", 3) != 3 || k.err != nil {
		t.Error("a value is not what was written:", k.err)
	}
	m, v := f.Tensors[0], f.Tensors[1]
	if m.Name != "m" || m.Shape[0] != 2 || m.Shape[1] != 32 || len(m.Data) != 68 || m.Data[2] != 3 {
		t.Error(m)
	}
	if v.Name != "v" || len(v.Data) != 12 || v.Data[1] != 5 {
		t.Error(v)
	}
}

// TestEveryCut: a file that ends anywhere before its last byte is refused, and what is read of it
// takes no more memory than it has.
func TestEveryCut(t *testing.T) {
	whole := tiny()
	for n := range len(whole) {
		if _, err := Parse(whole[:n]); err == nil {
			t.Fatalf("a file of %d of its %d bytes was taken", n, len(whole))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	header := func(tensors, pairs uint64) []byte {
		w := writer(magic)
		w.u32(3)
		w.u64(tensors)
		w.u64(pairs)
		return append(w, make([]byte, 64)...)
	}
	version := func(n uint32) []byte {
		w := writer(magic)
		w.u32(n)
		return append(w, make([]byte, 32)...)
	}
	deep := writer{}
	deep.u32(uint32(kindArray))
	for range maxArrayDepth + 2 {
		deep.u32(uint32(kindArray))
		deep.u64(1)
	}
	endless, long := writer{}, writer{}
	endless.array(kindU8, 1<<62)
	long.u32(uint32(kindString))
	long.u64(1<<64 - 1)
	one := func(e entry, size int) []byte { return build(nil, []entry{e}, size) }
	for want, input := range map[string][]byte{
		"does not begin with GGUF":      []byte("GGML............"),
		"version 1 is not read":         version(1),
		"big-endian":                    version(3 << 24),
		"version 9 is not known":        version(9),
		"the number of tensors is":      header(1<<60, 0),
		"the number of keys is":         header(0, 1<<60),
		`key "a" comes twice`:           build([]pair{{"a", true}, {"a", true}}, nil, 0),
		"value type 77 is not known":    build([]pair{{"a", writer{77, 0, 0, 0}}}, nil, 0),
		"a truth value of 2":            build([]pair{{"a", writer{7, 0, 0, 0, 2}}}, nil, 64),
		"nested deeper than":            build([]pair{{"a", deep}}, nil, 64),
		"the number of its elements is": build([]pair{{"a", endless}}, nil, 64),
		"its text takes":                build([]pair{{"a", long}}, nil, 64),
		`"general.alignment" is 24`:     build([]pair{{"general.alignment", uint32(24)}}, nil, 0),
		`"general.alignment" is 0`:      build([]pair{{"general.alignment", uint32(0)}}, nil, 0),
		"0 dimensions":                  one(entry{name: "t"}, 0),
		"5 dimensions":                  one(entry{name: "t", shape: []uint64{1, 1, 1, 1, 1}}, 4),
		"a dimension of 0":              one(entry{name: "t", shape: []uint64{0}}, 4),
		"a dimension of 4294967296":     one(entry{name: "t", shape: []uint64{1 << 32}}, 4),
		"type 200 is not known":         one(entry{name: "t", shape: []uint64{1}, of: 200}, 4),
		"not whole blocks of Q8_0":      one(entry{name: "t", shape: []uint64{33}, of: Q8_0}, 68),
		"are too many": one(entry{name: "t",
			shape: []uint64{1 << 30, 1 << 30, 1 << 30}}, 4),
		"offset 4 is no multiple":      one(entry{name: "t", shape: []uint64{1}, offset: 4}, 64),
		"lie beyond the file's 3 data": one(entry{name: "t", shape: []uint64{1}}, 3),
		"its 4 bytes at 9223372036854775808": one(entry{name: "t", shape: []uint64{1},
			offset: 1 << 63}, 64),
		`tensor "t" comes twice`: build(nil, []entry{{name: "t", shape: []uint64{1}},
			{name: "t", shape: []uint64{1}, offset: 32}}, 64),
		`tensor "u" overlaps "t"`: build(nil, []entry{{name: "t", shape: []uint64{9}},
			{name: "u", shape: []uint64{1}, offset: 32}}, 64),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(input)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
			t.Errorf("%q: %d bytes allocated for a file of %d", want, grown, len(input))
		}
	}
}

// TestGaps: a gap before a tensor says that something is not of the type it was written with.
func TestGaps(t *testing.T) {
	for want, offsets := range map[string][2]uint64{
		`"u" starts at byte 64 of the data, but "t" ends at 4`:             {0, 64},
		`"u" starts at byte 32 of the data, but the file's header ends at`: {64, 32},
	} {
		_, err := Parse(build(nil, []entry{{name: "t", shape: []uint64{1}, offset: offsets[0]},
			{name: "u", shape: []uint64{1}, offset: offsets[1]}}, 96))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestParts reads a model in two files, by the name of either.
func TestParts(t *testing.T) {
	folder := t.TempDir()
	part := func(no, count uint32, names ...string) []byte {
		var entries []entry
		for i, name := range names {
			entries = append(entries, entry{name: name, shape: []uint64{1}, offset: uint64(32 * i)})
		}
		return build([]pair{{"general.architecture", "llama"}, {"split.no", no},
			{"split.count", count}, {"split.tensors.count", uint32(3)}}, entries, 64)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := write("m-00001-of-00002.gguf", part(0, 2, "a", "b"))
	second := write("m-00002-of-00002.gguf", part(1, 2, "c"))
	for _, path := range []string{first, second} {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors) != 3 || f.Tensors[2].Name != "c" {
			t.Error(f.Tensors)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for want, content := range map[string][]byte{
		"by its own metadata it is part 1 of 2": part(0, 2, "c"),
		`tensor "b" is in an earlier part too`:  part(1, 2, "b"),
		"the parts hold 4 tensors":              part(1, 2, "c", "d"),
		"truncated?":                            part(1, 2, "c")[:100],
	} {
		write("m-00002-of-00002.gguf", content)
		if _, err := Open(first); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(first); err == nil || !strings.Contains(err.Error(), "part 2 of 2") {
		t.Error(err)
	}
	lone := write("lone.gguf", part(0, 2, "a"))
	if _, err := Open(lone); err == nil || !strings.Contains(err.Error(), "it is a part of 2") {
		t.Error(err)
	}
}

// FuzzParse: whatever the bytes are, reading them ends in a file or an error, and so does showing
// the file as a folder.
func FuzzParse(f *testing.F) {
	f.Add(tiny())
	f.Add(tinyLlama())
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range file.Tensors {
			total += len(tensor.Data)
		}
		if total > len(data) {
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(data))
		}
		if _, err := file.Folder(); err != nil {
			return
		}
		w, err := file.Weights()
		if err != nil {
			return
		}
		for _, name := range w.Names() {
			if _, ok := w.Tensor(name); !ok {
				t.Fatalf("%q is named and not there", name)
			}
		}
	})
}

// TestPutBack: reordering rows as the converters do and putting them back is no change.
func TestPutBack(t *testing.T) {
	const heads, dims, width = 3, 8, 4
	folder := make([]byte, heads*dims*width)
	for i := range folder {
		folder[i] = byte(i)
	}
	var file []byte
	for h := range heads {
		for pair := range dims / 2 {
			for half := range 2 { // the file's order: both of a pair beside each other
				row := h*dims + half*dims/2 + pair
				file = append(file, folder[row*width:][:width]...)
			}
		}
	}
	s := source{Tensor: Tensor{Shape: []int{heads * dims, width}, Data: file}, heads: heads}
	if got := s.putBack(); !bytes.Equal(got, folder) {
		t.Errorf("%v\nwant %v", got, folder)
	}
}

// tinyLlama is the smallest file that a folder can be made of.
func tinyLlama() []byte {
	u := func(n uint32) uint32 { return n }
	return build([]pair{
		{"general.architecture", "llama"},
		{"llama.block_count", u(1)}, {"llama.embedding_length", u(4)},
		{"llama.attention.head_count", u(2)}, {"llama.feed_forward_length", u(8)},
		{"llama.context_length", u(16)},
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.tokens", []string{"<unk>", "<s>", "</s>", "a", "b", "ab"}},
		{"tokenizer.ggml.scores", []float32{0, 0, 0, -1, -2, -3}},
		{"tokenizer.ggml.token_type", []int32{2, 3, 3, 1, 1, 1}},
		{"tokenizer.ggml.bos_token_id", u(1)}, {"tokenizer.ggml.eos_token_id", u(2)},
		{"tokenizer.chat_template", "{{ messages }}"},
	}, []entry{
		{name: embeddingName, shape: []uint64{4, 6}, of: F32},
		{name: "blk.0.attn_q.weight", shape: []uint64{4, 4}, of: F32, offset: 96},
		{name: factorsName, shape: []uint64{1}, of: F32, offset: 160,
			content: binary.LittleEndian.AppendUint32(nil, 0x40000000)},
	}, 164)
}
