package model_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// quantised are the shared models with weights in few bits. Of those of stories260K the reference
// is llama.cpp, whose activations have 8 bits too: its tokens lead.
var quantised = []reference{
	{model: "gguf/w256-Q4_0.gguf", golden: "inflated_w256-dequant-Q4_0.json"},
	{model: "gguf/w256-Q8_0.gguf", golden: "inflated_w256-dequant-Q8_0.json"},
	{model: "gguf/w256-Q4_K.gguf", golden: "inflated_w256-dequant-Q4_K.json"},
	{model: "gguf/w256-Q5_K.gguf", golden: "inflated_w256-dequant-Q5_K.json"},
	{model: "gguf/w256-Q6_K.gguf", golden: "inflated_w256-dequant-Q6_K.json"},
	{model: "stories260k/gguf/stories260K-pad192-Q8_0.gguf",
		golden: "llamacpp_stories260K-pad192-Q8_0.gguf.json"},
	{model: "stories260k/gguf/stories260K-pad192-Q4_0.gguf",
		golden: "llamacpp_stories260K-pad192-Q4_0.gguf.json"},
}

// TestInt8 holds 8-bit activations against what the goldens' readme allows them: where the
// reference's tokens lead, of each prompt 57 choices of 64 are equal, and the distributions are
// near those of the same weights with activations in float32.
func TestInt8(t *testing.T) {
	for _, r := range quantised {
		t.Run(r.model, func(t *testing.T) {
			short := loadModel(t, openDevice(t, cpu.Options{}), r.model, 16)
			whole := loadModel(t, openDevice(t, cpu.Options{FloatActivations: true}), r.model, 16)
			for _, c := range r.read(t).Cases {
				equal, divergence := 0, 0.0
				want := c.forced(t, whole, c.PromptIDs)
				got := c.forced(t, short, c.PromptIDs)
				for i, id := range choices(got) {
					if id == c.GreedyIDs[i] {
						equal++
					}
					divergence += divergenceOfRows(want[i], got[i]) / float64(len(got))
				}
				t.Logf("%q: %d of %d choices equal, divergence %.2g", c.Prompt, equal, len(got),
					divergence)
				if equal*64 < len(got)*fewestEqual || divergence > mostDivergence ||
					divergence <= 0 {
					t.Errorf("%q: %d of %d choices equal, divergence %v; at least %d of 64 and "+
						"at most %v are right, and more than 0", c.Prompt, equal, len(got),
						divergence, fewestEqual, mostDivergence)
				}
			}
		})
	}
}

// TestFolderAndFile: a folder and the file that another program made of it give the same bits, of
// all rows of a text that crosses windows.
func TestFolderAndFile(t *testing.T) {
	for folder, file := range map[string]string{
		"stories260k/hf-f32": "stories260k/gguf/stories260K-F32.gguf",
		"qwen2-bias":         "gguf/qwen2-bias-F32.gguf",
		"stories-qwen3":      "gguf/stories-qwen3-F32.gguf",
		"stories-gemma3":     "gguf/stories-gemma3-F32.gguf",
	} {
		t.Run(folder, func(t *testing.T) {
			device := openDevice(t, cpu.Options{})
			rows := func(name string) [][]float32 {
				m, err := model.Load(device, modelDir(t, name), model.Options{KV: gpu.F16})
				if err == nil {
					_, err = m.NewKV(64, 16)
				}
				if err != nil {
					t.Fatal(err)
				}
				g := readGolden(t, filepath.Join(sharedDir(t), "golden", "stories260K_hf-f32.json"))
				var text []int32
				for _, c := range g.Cases {
					text = slices.Concat(text, c.PromptIDs, c.GreedyIDs)
				}
				return newSequence(t, m, 16, 0, len(text)).run(text, 100)
			}
			sameBits(t, file, rows(file), rows(folder))
		})
	}
}
