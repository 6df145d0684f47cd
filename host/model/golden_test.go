package model_test

import (
	"cmp"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// reference is a model and the golden file that belongs to it.
type reference struct {
	model, golden string
	most          float64 // how far logits may be off; 0 means mostOff
}

// mostOff is how far logits may be off in float32: five times its noise, and a third of what
// another epsilon does to the model that minds it least.
const mostOff = 2e-4

// read reads the golden file.
func (r reference) read(t testing.TB) golden {
	t.Helper()
	if r.golden == "" {
		return readGolden(t, filepath.Join(modelDir(t, r.model), "golden.json"))
	}
	return readGolden(t, filepath.Join(sharedDir(t), "golden", r.golden))
}

// goldens are all models that tests run. What is random/... is always there.
var goldens = []reference{
	{model: "stories260k/hf-f32", golden: "stories260K_hf-f32.json"},
	{model: "stories260k/hf-f32-sharded", golden: "stories260K_hf-f32.json"},
	{model: "stories260k/hf-f16", golden: "stories260K_hf-f16.json"},
	{model: "stories260k/hf-bf16", golden: "stories260K_hf-bf16.json"},
	{model: "llama-untied", golden: "variants_llama-untied.json"},
	{model: "w256-bf16", golden: "inflated_w256-bf16.json"},
	{model: "llama3-rope", golden: "variants_llama3-rope.json"},
	{model: "mistral-swa32", golden: "variants_mistral-swa32.json"},
	{model: "qwen2-bias", golden: "variants_qwen2-bias.json"},
	{model: "gemma1", golden: "variants_gemma1.json"},
	{model: "stories-qwen3", golden: "stories-qwen3.json"},
	{model: "stories-gemma3", golden: "stories-gemma3.json"},
	{model: "stories260k/gguf/stories260K-F32.gguf", golden: "stories260K_hf-f32.json"},
	// Norms are float32 in these files and short in the folders.
	{model: "stories260k/gguf/stories260K-F16.gguf", golden: "stories260K_hf-f16.json", most: 0.02},
	{model: "stories260k/gguf/stories260K-BF16.gguf", golden: "stories260K_hf-bf16.json",
		most: 0.1},
	{model: "gguf/w256-Q4_0.gguf", golden: "inflated_w256-dequant-Q4_0.json"},
	{model: "gguf/w256-Q8_0.gguf", golden: "inflated_w256-dequant-Q8_0.json"},
	{model: "gguf/w256-Q4_K.gguf", golden: "inflated_w256-dequant-Q4_K.json"},
	{model: "gguf/w256-Q5_K.gguf", golden: "inflated_w256-dequant-Q5_K.json"},
	{model: "gguf/w256-Q6_K.gguf", golden: "inflated_w256-dequant-Q6_K.json"},
	{model: "gguf/qwen2-bias-F32.gguf", golden: "variants_qwen2-bias.json"},
	{model: "gguf/stories-qwen3-F32.gguf", golden: "stories-qwen3.json"},
	{model: "gguf/stories-gemma3-F32.gguf", golden: "stories-gemma3.json"},
	{model: "random/phi3"},
	{model: "random/mixtral"},
	{model: "random/mixtral-window"},
	{model: "random/yarn"},
	{model: "random/yarn-own"},
	{model: "random/linear"},
	{model: "random/llama3"},
	{model: "random/sinks"},
	{model: "random/qwen2-window"},
	{model: "random/qwen3"},
	{model: "random/gemma"},
	{model: "random/gemma2"},
	{model: "random/gemma3"},
}

func TestGolden(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.model, func(t *testing.T) {
			checkGolden(t, openDevice(t, cpu.Options{FloatActivations: true}), g)
		})
	}
	t.Run("plain Go", func(t *testing.T) {
		checkGolden(t, openDevice(t, cpu.Options{ISA: cpu.Go}), goldens[0])
	})
	t.Run("reference device", func(t *testing.T) {
		checkGolden(t, cpu.NewTwin(cpu.NumericsFMA), goldens[0])
	})
}

// checkGolden wants the reference's tokens exactly and its logits near.
func checkGolden(t *testing.T, device gpu.Device, r reference) {
	m := loadModel(t, device, r.model, 16)
	worst, g := 0.0, r.read(t)
	for _, c := range g.Cases {
		rows := c.free(t, m)
		if ids := choices(rows); !slices.Equal(ids, c.GreedyIDs) {
			t.Errorf("%q: tokens %v, want %v", c.Prompt, ids, c.GreedyIDs)
		}
		worst = max(worst, c.distance(rows, g.Stride))
	}
	t.Logf("logits are within %.1e", worst)
	if most := cmp.Or(r.most, mostOff); worst > most {
		t.Errorf("logits are off by %v, at most %v is right", worst, most)
	}
}
