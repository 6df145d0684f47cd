package model_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// planted is a mistake, and the golden prompt by whose logits it shows.
type planted struct {
	what   string
	prompt string
	by     mistake
	// turned is how many of 64 choices the same mistake turns in the reference's own code, by the
	// goldens' readme. It says that the two are the same. Tokens alone do not show those with 0.
	turned int
}

// everywhere holds for all layers.
func everywhere(int) bool { return true }

// plants are the mistakes that the goldens' readme lists, but for the inputs of products in
// bfloat16, which is a class of its own.
var plants = map[string][]planted{
	"SmolLM2-135M-Instruct.Q4_1.gguf": {
		{"halves turn, not neighbours", "fact", mistake{pairs: turnHalves}, 46},
		{"rope base 1e4", "fact", mistake{rope: base(1e4)}, 6},
		{"query head h takes key head h mod 3", "fact", mistake{mixed: true}, 63},
		{"BOS added", "fact", mistake{prompt: add(1)}, 2},
		{"BOS added", "long", mistake{prompt: add(1)}, 0},
		{"epsilon 1e-6", "fact", mistake{norm: epsilon(1e-6)}, 0},
	},
	"gemma-3-270m-q4_k_m.gguf": {
		{"neighbours turn, not halves", "fact", mistake{pairs: turnNeighbours}, 32},
		{"rope base 1e6 everywhere", "fact", mistake{rope: base(1e6)}, 15},
		{"rope base 1e4 everywhere", "fact", mistake{rope: base(1e4)}, 7},
		{"no window", "long", mistake{attention: windowOf(func(int) int { return 0 })}, 27},
		{"window 511", "long", mistake{attention: windowOf(func(w int) int { return w - 1 })}, 0},
		{"window 513", "long", mistake{attention: windowOf(func(w int) int { return w + 1 })}, 0},
		{"window on all layers", "fact", slides(512, 1e4, 1e6, everywhere), 7},
		{"layers 0, 6, 12 see everything", "fact",
			slides(512, 1e4, 1e6, func(layer int) bool { return layer%6 != 0 }), 7},
		{"embedding scale 25.25", "fact", mistake{scale: brain}, 0},
		{"no embedding scale", "fact", mistake{scale: func(float32) float32 { return 1 }}, 64},
		{"norms + 1 once more", "fact", mistake{norm: oneMore}, 63},
		{"no norms of queries and keys", "fact", mistake{norm: noHeadNorm}, 54},
		{"query scale 1/√160", "fact", mistake{attention: scaleOf(1 / math.Sqrt(160))}, 8},
		{"no BOS", "fact", mistake{prompt: func(ids []int32) []int32 { return ids[1:] }}, 29},
		{"two BOS", "fact", mistake{prompt: add(2)}, 7},
		{"exact GELU", "fact", mistake{gate: exactGELU}, 0},
		{"epsilon 1e-5", "fact", mistake{norm: epsilon(1e-5)}, 6},
	},
}

// add puts a token before a prompt.
func add(id int32) func([]int32) []int32 {
	return func(ids []int32) []int32 { return append([]int32{id}, ids...) }
}

// TestPlantedFaults: what TestRealModels compares would notice each mistake. With -v it says by how
// much.
func TestPlantedFaults(t *testing.T) {
	device := &faulty{Device: openReal(t, true)}
	eachReal(t, device, model.Options{}, func(t *testing.T, m *model.Model, g *golden) {
		for _, p := range append([]planted{{"nothing", "fact", mistake{}, 0},
			{"nothing", "long", mistake{}, 0}}, plants[g.File]...) {
			for _, c := range g.Cases {
				if c.ID == p.prompt {
					device.mistake = p.by
					checkPlanted(t, m, g, &c, p)
				}
			}
		}
	})
}

func checkPlanted(t *testing.T, m *model.Model, g *golden, c *goldenCase, p planted) {
	t.Helper()
	off, turned := c.under(t, m, p.by, g.Stride)
	t.Logf("%s: %s: logits off by %.2g, %d of %d choices turn", p.prompt, p.what, off, turned,
		len(c.GreedyIDs))
	if noticed := off > mostFloat; noticed == (p.what == "nothing") {
		t.Errorf("%s: logits are off by %v, at most %v is right", p.what, off, mostFloat)
	}
	if turned < p.turned-2 || turned > p.turned+2 {
		t.Errorf("%s: %d choices turn, %d in the reference's code", p.what, turned, p.turned)
	}
}

// under is how far a mistake, which is in the device already, moves the logits of a case, and how
// many choices it turns.
func (c *goldenCase) under(
	t *testing.T, m *model.Model, by mistake, stride int,
) (off float64, turned int) {
	t.Helper()
	prompt := c.PromptIDs
	if by.prompt != nil {
		prompt = by.prompt(prompt)
	}
	rows := c.forced(t, m, prompt)
	for i, id := range choices(rows) {
		if id != c.GreedyIDs[i] {
			turned++
		}
	}
	return c.distance(rows, stride), turned
}

// TestPlantedFaultsInFolders: what TestGolden compares would notice each mistake that can be made
// with the small shared models. Choices alone would not notice a window of one less in one of them.
func TestPlantedFaultsInFolders(t *testing.T) {
	for _, r := range goldens {
		if strings.HasPrefix(r.model, "random/") || r.most > 0 {
			continue
		}
		t.Run(r.model, func(t *testing.T) {
			device := &faulty{Device: openDevice(t,
				cpu.Options{Threads: 1, FloatActivations: true})}
			m, g := loadModel(t, device, r.model, 16), r.read(t)
			all := mistakesIn(m.Config())
			for _, what := range slices.Sorted(maps.Keys(all)) {
				device.mistake = all[what]
				worst, changed, steps := 0.0, 0, 0
				for _, c := range g.Cases {
					off, turned := c.under(t, m, all[what], g.Stride)
					worst, changed = max(worst, off), changed+turned
					steps += len(c.GreedyIDs)
				}
				t.Logf("%s: logits off by %.2g, %d of %d choices turn", what, worst, changed, steps)
				if noticed := worst > mostOff; noticed == (what == "nothing") {
					t.Errorf("%s: logits are off by %v, at most %v is right", what, worst, mostOff)
				}
			}
		})
	}
}

// mistakesIn are those that can be made with a model.
func mistakesIn(c model.Config) map[string]mistake {
	all := map[string]mistake{
		"nothing":             {},
		"neighbours turn":     {pairs: turnNeighbours},
		"another rope base":   {rope: base(5e5)},
		"key heads mixed up":  {mixed: true},
		"epsilon ten times":   {norm: func(a *gpu.NormArgs) bool { a.Eps *= 10; return true }},
		"norms + 1 once more": {norm: oneMore},
		"another query scale": {attention: scaleOf(1 / math.Sqrt(float64(c.Hidden)))},
		"two BOS":             {prompt: add(1)},
	}
	if c.Window > 0 {
		all["no window"] = mistake{attention: windowOf(func(int) int { return 0 })}
		all["a window of one less"] = mistake{attention: windowOf(func(w int) int { return w - 1 })}
		all["a window of one more"] = mistake{attention: windowOf(func(w int) int { return w + 1 })}
	}
	if strings.Contains(c.Rope, "llama3") {
		all["no scaling of the rotation"] = mistake{rope: base(1e4)}
	}
	switch c.Architecture {
	case "Qwen2ForCausalLM":
		all["no bias"] = mistake{product: func(a *gpu.MatMulArgs) { a.Bias = nil }}
	case "Qwen3ForCausalLM":
		all["no norms of queries and keys"] = mistake{norm: noHeadNorm}
	case "Gemma3ForCausalLM":
		all["no norms of queries and keys"] = mistake{norm: noHeadNorm}
		all["a window on all layers"] = slides(c.Window, 1e4, 1e6, everywhere)
		all["layer 0 sees everything"] = slides(c.Window, 1e4, 1e6,
			func(layer int) bool { return layer%6 != 0 })
		all["rope base 1e4 everywhere"] = mistake{rope: base(1e4)}
		all["rope base 1e6 everywhere"] = mistake{rope: base(1e6)}
	}
	if strings.HasPrefix(c.Architecture, "Gemma") {
		all["no embedding scale"] = mistake{scale: func(float32) float32 { return 1 }}
		all["exact GELU"] = mistake{gate: exactGELU}
	}
	return all
}
