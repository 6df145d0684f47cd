package model_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/model"
)

// TestScenario18: a model of an unknown architecture, of a recurrent one for instance, is refused
// at load with its name.
func TestScenario18UnknownArchitecture(t *testing.T) {
	for _, name := range []string{"MambaForCausalLM", "Rwkv5ForCausalLM", "JambaForCausalLM"} {
		files := fstest.MapFS{"config.json": {Data: []byte(`{"architectures": ["` + name + `"]}`)}}
		_, err := model.ReadConfig(files)
		_, err2 := model.LoadFS(openDevice(t, cpu.Options{}), files, model.Options{})
		if err == nil || err2 == nil || !strings.Contains(err.Error(), name) &&
			!strings.Contains(err.Error(), strings.TrimSuffix(name, "ForCausalLM")) {
			t.Errorf("%s: %v, %v", name, err, err2)
		}
	}
}

// lookups notes how many tokens each look-up of a device takes.
type lookups struct {
	gpu.Device
	tokens [][]int32
}

func (l *lookups) Embed(dst gpu.Buffer, m gpu.Matrix, tokens []int32, scale float32) error {
	l.tokens = append(l.tokens, slices.Clone(tokens))
	return l.Device.Embed(dst, m, tokens, scale)
}

// TestScenario43: tokens that came as [10] and [20], of one request or of several, are embedded in
// one look-up of 30, and those around vectors too.
func TestScenario43OneLookUp(t *testing.T) {
	l := &lookups{Device: openDevice(t, cpu.Options{})}
	m := loadModel(t, l, "random/llama3", 16)
	tokens := make([]int32, 30)
	for i := range tokens {
		tokens[i] = int32(3 + i)
	}
	parts := batch.Batch{Items: []batch.Item{
		newSequence(t, m, 16, 0, 10).item(tokens[:10]),
		newSequence(t, m, 16, 1, 20).item(tokens[10:]),
	}}
	run(t, m, parts)
	if len(l.tokens) != 1 || !slices.Equal(l.tokens[0], tokens) {
		t.Errorf("look-ups of %v", l.tokens)
	}
	l.tokens = nil
	width := m.Config().Hidden
	mixed := asVectors(newSequence(t, m, 16, 0, 30).item(tokens), width, 10, 20,
		make([]float32, 30*width))
	run(t, m, batch.Batch{Items: []batch.Item{mixed}})
	if len(l.tokens) != 1 || !slices.Equal(l.tokens[0], slices.Concat(tokens[:10], tokens[20:])) {
		t.Errorf("look-ups of %v", l.tokens)
	}
}

// TestScenario44: ten tokens, 576 vectors, five tokens: 591 rows at offsets 0, 10 and 586, which
// give what 591 tokens give whose table rows the vectors are.
func TestScenario44ThreeParts(t *testing.T) {
	const name = "random/qwen3"
	device := openDevice(t, cpu.Options{})
	m, err := model.Load(device, modelDir(t, name), model.Options{MaxRows: 1024})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewKV(120, 16); err != nil {
		t.Fatal(err)
	}
	about := m.Config()
	tokens := make([]int32, 591)
	for i := range tokens {
		tokens[i] = int32((i*31 + 7) % about.Vocabulary)
	}
	all := rowsOf(t, name, about, tokens)
	want := newSequence(t, m, 16, 0, 591).run(tokens, 591)
	item := asVectors(newSequence(t, m, 16, 1, 591).item(tokens), about.Hidden, 10, 586, all)
	sameBits(t, "three parts", run(t, m, batch.Batch{Items: []batch.Item{item}}), want)
}

// TestScenario47: one request of tokens alone is looked up straight into place; beside one with
// vectors it goes through a buffer. Both give the same.
func TestScenario47TheDirectPath(t *testing.T) {
	m := loadModel(t, openDevice(t, cpu.Options{}), "random/gemma3", 16)
	tokens := make([]int32, 50)
	for i := range tokens {
		tokens[i] = int32(3 + i)
	}
	want := newSequence(t, m, 16, 0, 50).run(tokens, 50)
	width := m.Config().Hidden
	other := asVectors(newSequence(t, m, 16, 1, 8).item(tokens[:8]), width, 2, 5,
		make([]float32, 8*width))
	both := batch.Batch{Items: []batch.Item{other, newSequence(t, m, 16, 2, 50).item(tokens)}}
	sameBits(t, "beside vectors", run(t, m, both)[8:], want)
}
