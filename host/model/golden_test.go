package model_test

import (
	"math"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// goldens says which reference belongs to which model.
var goldens = []struct{ model, golden string }{
	{"stories260k/hf-f32", "stories260K_hf-f32.json"},
	{"stories260k/hf-f32-sharded", "stories260K_hf-f32.json"},
	{"stories260k/hf-f16", "stories260K_hf-f16.json"},
	{"stories260k/hf-bf16", "stories260K_hf-bf16.json"},
	{"llama-untied", "variants_llama-untied.json"},
	{"w256-bf16", "inflated_w256-bf16.json"},
	{"llama3-rope", "variants_llama3-rope.json"},
	{"mistral-swa32", "variants_mistral-swa32.json"},
	{"qwen2-bias", "variants_qwen2-bias.json"},
	{"gemma1", "variants_gemma1.json"},
	{"stories-qwen3", "stories-qwen3.json"},
	{"stories-gemma3", "stories-gemma3.json"},
}

func TestGolden(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.model, func(t *testing.T) {
			checkGolden(t, openDevice(t, cpu.Options{}), g.model, g.golden)
		})
	}
	t.Run("plain Go", func(t *testing.T) {
		checkGolden(t, openDevice(t, cpu.Options{ISA: cpu.Go}), goldens[0].model, goldens[0].golden)
	})
	t.Run("reference device", func(t *testing.T) {
		checkGolden(t, cpu.NewTwin(), goldens[0].model, goldens[0].golden)
	})
}

// checkGolden wants the reference's tokens exactly and its logits within 1e-3.
func checkGolden(t *testing.T, device gpu.Device, name, file string) {
	const pageSize = 16
	m := loadModel(t, device, name, pageSize)
	for _, c := range readGolden(t, file).Cases {
		s := newSequence(t, m, pageSize, 1, len(c.PromptIDs)+len(c.GreedyIDs))
		rows := s.run(c.PromptIDs, 512)
		last := rows[len(rows)-1]
		for i, want := range c.Logits {
			if math.Abs(float64(last[i]-want)) > 1e-3 {
				t.Fatalf("%q: logit %d is %v, want %v", c.Prompt, i, last[i], want)
			}
		}
		var ids []int32
		for range c.GreedyIDs {
			ids = append(ids, argmax(last))
			if len(ids) < len(c.GreedyIDs) {
				last = s.run(ids[len(ids)-1:], 1)[0]
			}
		}
		if !slices.Equal(ids, c.GreedyIDs) {
			t.Errorf("%q: tokens %v, want %v", c.Prompt, ids, c.GreedyIDs)
		}
	}
}
