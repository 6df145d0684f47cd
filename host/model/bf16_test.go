package model_test

import (
	"fmt"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// inBF16 are models with weights in BF16, stored or converted. The reference of one golden is
// llama.cpp, which rounds activations too.
var inBF16 = []reference{
	{model: "stories260k/hf-bf16", golden: "stories260K_hf-bf16.json"},
	{model: "w256-bf16", golden: "inflated_w256-bf16.json"},
	{model: "stories260k/gguf/stories260K-BF16.gguf", golden: "stories260K_hf-bf16.json"},
	{model: "stories260k/gguf/stories260K-BF16.gguf",
		golden: "llamacpp_stories260K-BF16.gguf.json"},
	{model: "qwen2-bias", golden: "variants_qwen2-bias.json"},
	{model: "stories-qwen3", golden: "stories-qwen3.json"},
	{model: "stories-gemma3", golden: "stories-gemma3.json"},
	{model: "gemma1", golden: "variants_gemma1.json"},
}

// loadBF16 loads one of them.
func loadBF16(t testing.TB, device gpu.Device, name string) *model.Model {
	t.Helper()
	m, err := model.Load(device, modelDir(t, name), model.Options{DType: as(gpu.BF16)})
	if err == nil {
		_, err = m.NewKV(8192/16, 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What rounding to BF16 may do to a prompt.
const (
	fewestEqualBF16    = 59   // choices of 64
	mostDivergenceBF16 = 1e-4 // mean
)

// TestBF16Activations: where the reference's tokens lead, nearly all choices are the reference's,
// and the distributions are near those of the same weights with activations in float32.
func TestBF16Activations(t *testing.T) {
	for _, r := range inBF16 {
		t.Run(r.model+" "+r.golden, func(t *testing.T) {
			short := loadBF16(t, openDevice(t, cpu.Options{BF16Activations: true}), r.model)
			whole := loadBF16(t, openDevice(t, cpu.Options{}), r.model)
			if n := short.Numerics(); n != cpu.NumericsBF16 {
				t.Errorf("computed in %s", n)
			}
			for _, c := range r.read(t).Cases {
				checkRounded(t, &c, c.forced(t, whole, c.PromptIDs),
					c.forced(t, short, c.PromptIDs))
			}
		})
	}
}

func checkRounded(t *testing.T, c *goldenCase, want, got [][]float32) {
	t.Helper()
	equal, divergence := 0, 0.0
	for i, id := range choices(got) {
		if id == c.GreedyIDs[i] {
			equal++
		}
		divergence += divergenceOfRows(want[i], got[i]) / float64(len(got))
	}
	t.Logf("%q: %d of %d choices equal, divergence %.2g", c.Prompt, equal, len(got), divergence)
	if equal*64 < len(got)*fewestEqualBF16 || divergence > mostDivergenceBF16 || divergence <= 0 {
		t.Errorf("%q: %d of %d choices equal, divergence %v; at least %d of 64 and at most %v are "+
			"right, and more than 0", c.Prompt, equal, len(got), divergence, fewestEqualBF16,
			mostDivergenceBF16)
	}
}

// TestSameBitsBF16: the promise of the package holds with activations in BF16.
func TestSameBitsBF16(t *testing.T) {
	for _, r := range inBF16[:2] {
		t.Run(r.model, func(t *testing.T) {
			m := loadModel(t, openDevice(t, cpu.Options{BF16Activations: true}), r.model, 16)
			for _, prompt := range prompts(t, r) {
				checkSameBits(t, m, prompt, 16)
			}
		})
	}
}

// TestDevicesGiveSameBitsBF16: the reference of the class, plain Go, AVX2 and AVX-512.
func TestDevicesGiveSameBitsBF16(t *testing.T) {
	for _, r := range inBF16[:2] {
		all := prompts(t, r)
		prompt := all[len(all)-1][:20]
		twin := loadModel(t, cpu.NewTwin(cpu.NumericsBF16), r.model, 16)
		want := newSequence(t, twin, 16, 0, len(prompt)).run(prompt, 512)
		for _, o := range []cpu.Options{{ISA: cpu.Go, Threads: 2}, {Threads: 1}, {Threads: 3},
			{Threads: 4}, {ISA: cpu.AVX2, Threads: 2}} {
			o.BF16Activations = true
			device, err := cpu.Open(o)
			if err != nil {
				continue // this processor lacks the instructions
			}
			for _, chunk := range []int{512, 7} {
				m := loadModel(t, device, r.model, 16)
				got := newSequence(t, m, 16, 0, len(prompt)).run(prompt, chunk)
				sameBits(t, fmt.Sprintf("%s %+v", r.model, o), got, want)
			}
			if err := device.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBF16MeetsOthers: weights of other types see what they see without the setting, and a model of
// both kinds says so.
func TestBF16MeetsOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		floats bool
		want   string
	}{
		{name: "stories260k/hf-f16", want: cpu.NumericsFMA},
		{name: "stories260k/hf-f32", want: cpu.NumericsFMA},
		{name: "gguf/w256-Q8_0.gguf", want: cpu.NumericsInt8},
		{name: "gguf/w256-Q8_0.gguf", floats: true, want: cpu.NumericsFMA},
	} {
		rows := func(o cpu.Options) (*model.Model, [][]float32) {
			o.FloatActivations = c.floats
			m := loadModel(t, openDevice(t, o), c.name, 16)
			prompt := []int32{1, 5, 9, 2, 40, 33, 17, 8, 300, 12, 4, 99, 250, 6, 3, 7, 55, 20, 11}
			return m, newSequence(t, m, 16, 0, len(prompt)).run(prompt, 512)
		}
		m, got := rows(cpu.Options{BF16Activations: true})
		_, want := rows(cpu.Options{})
		sameBits(t, c.name, got, want)
		if n := m.Numerics(); n != c.want {
			t.Errorf("%s: computed in %s, want %s", c.name, n, c.want)
		}
	}
	d, err := cpu.Open(cpu.Options{BF16Activations: true, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if both := d.NumericsOf([]gpu.DType{gpu.BF16, gpu.Q4_K}); both != cpu.NumericsBF16Int8 {
		t.Errorf("BF16 and Q4_K are computed in %s", both)
	}
}
