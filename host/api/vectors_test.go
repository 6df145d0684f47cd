package api

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
)

// file is a safetensors file of one tensor.
func file(dtype, shape string, data []byte) []byte {
	header := fmt.Sprintf(`{"x":{"dtype":%q,"shape":%s,"data_offsets":[0,%d]}}`, dtype, shape,
		len(data))
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func floats(values ...float32) (data []byte) {
	for _, x := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

func encoded(file []byte) string { return base64.StdEncoding.EncodeToString(file) }

// TestVectors: tensors of each type become the same vectors, and equal ones have equal digests.
func TestVectors(t *testing.T) {
	m := &Model{Hidden: 3, Context: 100}
	values := []float32{1, -0.5, 0, 2, 0.25, -3}
	var half, brain []byte
	for _, h := range []uint16{0x3c00, 0xb800, 0, 0x4000, 0x3400, 0xc200} {
		half = binary.LittleEndian.AppendUint16(half, h)
	}
	for _, x := range values {
		brain = binary.LittleEndian.AppendUint16(brain, uint16(math.Float32bits(x)>>16))
	}
	var digests [][32]byte
	for _, f := range [][]byte{file("F32", "[2,3]", floats(values...)), file("F16", "[2,3]", half),
		file("BF16", "[1,2,3]", brain)} {
		e, fault := m.vectors(openai.Item{Embeds: encoded(f)})
		if fault != nil {
			t.Fatal(fault)
		}
		if e.Rows != 2 || !slices.Equal(e.Values, values) || !slices.Equal(e.File, f) {
			t.Errorf("%+v", e)
		}
		digests = append(digests, e.Digest)
	}
	other, fault := m.vectors(openai.Item{Embeds: encoded(file("F32", "[2,3]",
		floats(1, -0.5, 0, 2, 0.25, -3.0000002)))})
	if fault != nil || digests[0] != digests[1] || digests[0] != digests[2] ||
		other.Digest == digests[0] {
		t.Errorf("digests %x, of another tensor %x, %v", digests, other.Digest, fault)
	}
	p, fault := m.mixed([]openai.Item{{Tokens: []int32{7, 8}},
		{Embeds: encoded(file("F32", "[2,3]", floats(values...)))}, {Tokens: []int32{9}},
		{Embeds: encoded(file("F32", "[1,3]", floats(values[:3]...)))}})
	if fault != nil || !slices.Equal(p.ids, []int32{7, 8, -1, -1, 9, -1}) || len(p.embeds) != 2 ||
		p.embeds[0].Start != 2 || p.embeds[1].Start != 5 {
		t.Errorf("%+v %v", p, fault)
	}
}

// TestBadVectors: whatever is wrong with a tensor is one 400 that says where and what.
func TestBadVectors(t *testing.T) {
	b := newBench(t, "once")
	b.model.Hidden = 2
	good := file("F32", "[1,2]", floats(1, 2))
	two := strings.Replace(string(good), `{"x"`, `{"y":{"dtype":"F32","shape":[0],`+
		`"data_offsets":[0,0]},"x"`, 1)
	long := binary.LittleEndian.AppendUint64(nil, uint64(len(two)-16))
	for name, c := range map[string]struct{ embeds, message string }{
		"no base64":    {"@@@@", "not base64"},
		"unpadded":     {"QQ", "not base64"},
		"torch":        {encoded([]byte("PK\x03\x04 archive/data.pkl")), "torch.save"},
		"pickle":       {encoded([]byte("\x80\x02}q")), "torch.save"},
		"no file":      {encoded([]byte("short")), "too few for a header"},
		"endless":      {encoded(append(slices.Repeat([]byte{255}, 7), 0x7f, 1)), "longer than"},
		"two tensors":  {encoded(append(long, two[8:]...)), "2 tensors"},
		"wide":         {encoded(file("F32", "[1,3]", floats(1, 2, 3))), "[1 3]"},
		"flat":         {encoded(file("F32", "[2]", floats(1, 2))), "[tokens, 2]"},
		"a batch":      {encoded(file("F32", "[2,1,2]", floats(1, 2, 3, 4))), "[2 1 2]"},
		"no positions": {encoded(file("F32", "[0,2]", nil)), "[0 2]"},
		"doubles":      {encoded(file("F64", "[1,2]", make([]byte, 16))), "F64"},
		"cut off":      {encoded(good[:len(good)-1]), "beyond the file's"},
		"NaN": {encoded(file("F32", "[2,2]", floats(1, 2, 3, float32(math.NaN())))),
			"NaN at [1, 1]"},
		"infinite": {encoded(file("F16", "[1,2]", []byte{0, 0x7c, 0, 0})), "+Inf at [0, 0]"},
		"long": {encoded(file("F32", "[512,2]", floats(make([]float32, 1024)...))),
			"maximum context length"},
	} {
		for _, prompt := range []string{`"prompt_embeds":%q`,
			`"prompt":[[5],{"prompt_embeds":%q}]`} {
			body := fmt.Sprintf("{"+prompt+"}", c.embeds)
			r := b.send("POST", "/v1/completions", body)
			var answer struct {
				Error struct{ Message, Param, Code string }
			}
			err := json.Unmarshal(r.Body.Bytes(), &answer)
			if err != nil || r.Code != 400 || !strings.Contains(answer.Error.Message, c.message) {
				t.Errorf("%s: %d %s", name, r.Code, r.Body)
			}
		}
	}
	b.model.Hidden = 0
	r := b.send("POST", "/v1/completions", fmt.Sprintf(`{"prompt_embeds":%q}`, encoded(good)))
	if r.Code != 400 || !strings.Contains(r.Body.String(), "takes no vectors") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

// FuzzVectors: no file makes more of itself than its own size justifies, and what is taken has
// numbers for all of its positions.
func FuzzVectors(f *testing.F) {
	f.Add(file("F32", "[1,2]", floats(1, 2)))
	f.Add(file("BF16", "[1,3,2]", make([]byte, 12)))
	f.Add([]byte("PK"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &Model{Hidden: 2}
		e, fault := m.vectors(openai.Item{Embeds: encoded(data)})
		if fault != nil {
			if fault.Status() != 400 {
				t.Errorf("status %d: %v", fault.Status(), fault)
			}
			return
		}
		if len(e.Values) != 2*e.Rows || 2*len(e.Values) > len(data) {
			t.Errorf("%d bytes became %d vectors in %d numbers", len(data), e.Rows, len(e.Values))
		}
		again, _ := m.vectors(openai.Item{Embeds: encoded(data)})
		r := generation.Request{Embeds: []generation.Embedding{e}}
		if !r.SamePrompt(&generation.Request{Embeds: []generation.Embedding{again}}) {
			t.Error("the same file is another one when it comes again")
		}
	})
}
