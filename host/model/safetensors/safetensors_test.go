package safetensors

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// file builds a file from a header and data.
func file(header string, data string) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

// one is the header of a file of one tensor.
func one(name, dtype, shape string, from, to int) string {
	return fmt.Sprintf(`{%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}}`,
		name, dtype, shape, from, to)
}

func TestParse(t *testing.T) {
	tensors, err := Parse(file(`{"__metadata__":{"format":"pt"},
		"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},
		"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
		"none":{"dtype":"I64","shape":[0,3],"data_offsets":[8,8]}}   `, "abcdefgh"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v", tensors); got != "[{a F32 [] [97 98 99 100]} "+
		"{b BF16 [2 1] [101 102 103 104]} {none I64 [0 3] []}]" {
		t.Error(got)
	}
}

func TestParseRefuses(t *testing.T) {
	promise := binary.LittleEndian.AppendUint64(nil, 1<<60)
	two := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
		%q:{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}`
	for want, input := range map[string][]byte{
		"0 bytes are too few":                 nil,
		"longer than the format allows":       append(promise, "{}"...),
		"truncated?":                          file(`{}`, "")[:9],
		"not a JSON object":                   file(`[]`, ""),
		"the JSON ends too early":             file(`{"a":`, ""),
		"follow the object":                   file(`{}{}`, ""),
		`"a" comes twice`:                     file(fmt.Sprintf(two, "a", 4, 8), "abcdefgh"),
		`"b" overlaps`:                        file(fmt.Sprintf(two, "b", 2, 6), "abcdef"),
		"belong to no tensor":                 file(fmt.Sprintf(two, "b", 5, 9), "abcdefghi"),
		"1 bytes at the end":                  file(one("a", "F32", "[1]", 0, 4), "abcde"),
		"beyond the file's 3 data bytes":      file(one("a", "F32", "[1]", 0, 4), "abc"),
		`unknown dtype "F31"`:                 file(one("a", "F31", "[1]", 0, 4), "abcd"),
		"takes 8 bytes, data_offsets give it": file(one("a", "F32", "[2]", 0, 4), "abcd"),
		"are not a byte range":                file(one("a", "F32", "[1]", 4, 0), "abcd"),
		"is too large": file(one("a", "F32",
			"[4294967296,4294967296,0]", 0, 0), ""),
		"more than 16 numbers": file(one("a", "F32",
			"["+strings.Repeat("1,", 40)+"1]", 0, 4), "abcd"),
		"cannot unmarshal number -1":     file(one("a", "F32", "[-1]", 0, 4), "abcd"),
		`unknown field "compression"`:    file(`{"a":{"compression":"zip"}}`, ""),
		"data_offsets [] are not a byte": file(`{"a":{"dtype":"F32","shape":[1]}}`, "abcd"),
	} {
		if _, err := Parse(input); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", input, err, want)
		}
	}
}

// folder writes files to a temporary folder.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// both opens a folder and the same files as a file system; they must agree.
func both(t *testing.T, files map[string][]byte) (*Weights, error) {
	t.Helper()
	mem := fstest.MapFS{}
	for name, data := range files {
		mem[name] = &fstest.MapFile{Data: data}
	}
	mapped, err := Open(folder(t, files))
	read, errRead := OpenFS(mem)
	if (err == nil) != (errRead == nil) {
		t.Fatalf("a folder gives %v, a file system %v", err, errRead)
	}
	if err != nil {
		return nil, err
	}
	if a, b := fmt.Sprint(mapped.tensors), fmt.Sprint(read.tensors); a != b {
		t.Fatalf("a folder gives %s, a file system %s", a, b)
	}
	t.Cleanup(func() {
		if err := mapped.Close(); err != nil {
			t.Error(err)
		}
	})
	return mapped, nil
}

func TestOpen(t *testing.T) {
	a, b := file(one("a", "F32", "[1]", 0, 4), "aaaa"), file(one("b", "F16", "[1,2]", 0, 4), "bbbb")
	single, err := both(t, map[string][]byte{"model.safetensors": a, "other": b})
	if err != nil {
		t.Fatal(err)
	}
	if names := fmt.Sprint(single.Names()); names != "[a]" {
		t.Error(names)
	}
	sharded, err := both(t, map[string][]byte{"1.safetensors": a, "2.safetensors": b,
		indexFile: []byte(`{"metadata":{"total_size":8},
			"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := sharded.Tensor("b"); !ok || string(x.Data) != "bbbb" || x.DType != F16 {
		t.Error(x, ok)
	}
}

func TestOpenRefuses(t *testing.T) {
	a := file(one("a", "F32", "[1]", 0, 4), "aaaa")
	index := func(s string) map[string][]byte {
		return map[string][]byte{"1": a, "2": a, indexFile: []byte(`{"weight_map":` + s + `}`)}
	}
	for want, files := range map[string]map[string][]byte{
		"only safetensors weights are read":   {"pytorch_model.bin": a},
		"model.safetensors: 3 bytes":          {"model.safetensors": []byte("abc")},
		"model.safetensors: 0 bytes":          {"model.safetensors": nil},
		"no weight_map":                       {indexFile: []byte(`{}`)},
		"no weight_map, or an empty one":      index(`{}`),
		"index.json: the JSON ends too early": {indexFile: []byte(`{"weight_map":{},`)},
		"3: open":                             index(`{"a":"3"}`),
		`"../1" is not the name of a file`:    index(`{"a":"../1"}`),
		`"/1" is not the name of a file`:      index(`{"a":"/1"}`),
		`"x/1" is not the name of a file`:     index(`{"a":"x/1"}`),
		`"x\\1" is not the name of a file`:    index(`{"a":"x\\1"}`),
		`".." is not the name of a file`:      index(`{"a":".."}`),
		`"" is not the name of a file`:        index(`{"a":""}`),
		`"a" comes twice`:                     index(`{"a":"1","a":"2"}`),
		`tensor "b" is not in 1`:              index(`{"a":"1","b":"1"}`),
		`tensor "a" is here and`:              index(`{"a":"1","b":"2"}`),
		"cannot unmarshal number":             index(`{"a":1}`),
	} {
		_, err := both(t, files)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := OpenFS(fstest.MapFS{"model.safetensors": {Mode: fs.ModeDir}}); err == nil {
		t.Error("a directory was read as weights")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "model.safetensors"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a directory was mapped as weights")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(one("a", "F32", "[1]", 0, 4), "abcd"))
	f.Add(file(`{"__metadata__":{"a":"b"}}`, ""))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<60))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := Parse(data)
		if err != nil {
			return
		}
		total := 0
		for _, x := range tensors {
			size := x.DType.Bytes()
			for _, n := range x.Shape {
				size *= n
			}
			if size != len(x.Data) {
				t.Fatalf("%s: shape %v and %d bytes", x.Name, x.Shape, len(x.Data))
			}
			total += size
		}
		if total > len(data) {
			t.Fatalf("%d bytes of tensors in a file of %d", total, len(data))
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":8},"weight_map":{"a":"1.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		index, err := parseIndex(data)
		if err != nil {
			return
		}
		for _, name := range index {
			if filepath.Base(name) != name || name == ".." || name == "." {
				t.Fatalf("accepted %q", name)
			}
		}
	})
}
