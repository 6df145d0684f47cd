package model_test

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// realModels are the two real models, by their goldens.
var realModels = map[string]string{
	"SmolLM2-135M-Instruct.Q4_1.gguf": "smollm2-135m-instruct-q4_1.json",
	"gemma-3-270m-q4_k_m.gguf":        "gemma3-270m-q4_k_m.json",
}

// eachReal runs a test on both real models where ENGINE_REAL_MODELS names the folder that holds
// their files.
func eachReal(
	t *testing.T, d gpu.Device, o model.Options, check func(*testing.T, *model.Model, *golden),
) {
	folder := os.Getenv("ENGINE_REAL_MODELS")
	if folder == "" {
		t.Skip("ENGINE_REAL_MODELS is not set")
	}
	for _, name := range slices.Sorted(maps.Keys(realModels)) {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, filepath.Join(sharedDir(t), "real", realModels[name]))
			m, err := model.Load(d, filepath.Join(folder, name), o)
			if err == nil {
				_, err = m.NewKV(256, 16)
			}
			if err != nil {
				t.Fatal(err)
			}
			check(t, m, &g)
		})
	}
}

// TestRealModels: with float32 activations every token is the reference's. Greedy tokens do not see
// all faults (a rounded embedding scale, another GELU), so the logits of every step are compared
// too.
func TestRealModels(t *testing.T) {
	eachReal(t, openReal(t, true), model.Options{}, checkReal)
}

// TestRealModelsShortKV: with keys and values in F16 the choices are the reference's up to the
// first near tie that such rounding may turn, and the logits near its own all the way.
func TestRealModelsShortKV(t *testing.T) {
	eachReal(t, openReal(t, true), model.Options{KV: gpu.F16}, checkShort)
}

// TestRealModelsInt8: with 8-bit activations the model moves by as much as the goldens' readme
// allows. The reference's own tokens lead, so that one other choice does not make all that follow
// another text.
func TestRealModelsInt8(t *testing.T) {
	eachReal(t, openReal(t, false), model.Options{}, checkForced)
}

// openReal opens the device with the instructions that ENGINE_TEST_ISA names, the best if none.
func openReal(t *testing.T, float bool) gpu.Device {
	return openDevice(t, cpu.Options{ISA: cpu.ISA(os.Getenv("ENGINE_TEST_ISA")),
		FloatActivations: float})
}

func checkShort(t *testing.T, m *model.Model, g *golden) {
	const most = 0.05 // as the goldens' readme allows
	worst := 0.0
	for _, c := range g.Cases {
		rows := c.forced(t, m, c.PromptIDs)
		sure := len(c.GreedyIDs)
		if c.NearTie.F16 != nil {
			sure = *c.NearTie.F16
		}
		if ids := choices(rows[:sure]); !slices.Equal(ids, c.GreedyIDs[:sure]) {
			t.Errorf("%s: tokens %v, want %v", c.ID, ids, c.GreedyIDs[:sure])
		}
		worst = max(worst, c.distance(rows, g.Stride))
	}
	t.Logf("%d prompts, logits within %.1e", len(g.Cases), worst)
	if worst > most || worst <= mostFloat {
		t.Errorf("logits are off by %v, at most %v is right, and more than in float32", worst, most)
	}
}

// What 8-bit activations may do to a prompt.
const (
	fewestEqual    = 57   // choices of 64
	mostDivergence = 0.02 // mean
)

func checkForced(t *testing.T, m *model.Model, g *golden) {
	for _, c := range g.Cases {
		rows, equal, divergence := c.forced(t, m, c.PromptIDs), 0, 0.0
		for step, id := range choices(rows) {
			if id == c.GreedyIDs[step] {
				equal++
			}
			divergence += divergenceOf(rows[step], c.Top[step], c.Total[step])
		}
		divergence /= float64(len(c.GreedyIDs))
		t.Logf("%s: %d of %d choices equal, divergence %.4f", c.ID, equal, len(c.GreedyIDs),
			divergence)
		if equal < fewestEqual || divergence > mostDivergence || divergence <= 0 {
			t.Errorf("%s: %d choices equal, divergence %v; at least %d and at most %v are right",
				c.ID, equal, divergence, fewestEqual, mostDivergence)
		}
	}
}

// divergenceOf is Kullback and Leibler's of a row of logits from the reference's distribution, over
// the reference's best tokens and, as one, all others.
func divergenceOf(row []float32, top [][2]float64, total float64) float64 {
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x))
	}
	own, d, restWant, restGot := math.Log(sum), 0.0, 1.0, 1.0
	for _, one := range top {
		want, got := one[1]-total, float64(row[int(one[0])])-own
		d += math.Exp(want) * (want - got)
		restWant, restGot = restWant-math.Exp(want), restGot-math.Exp(got)
	}
	if restWant > 1e-9 && restGot > 0 {
		d += restWant * math.Log(restWant/restGot)
	}
	return d
}

// mostFloat is how far logits may be off in float32, by the goldens' readme.
const mostFloat = 0.002

func checkReal(t *testing.T, m *model.Model, g *golden) {
	worst := 0.0
	for _, c := range g.Cases {
		rows := c.free(t, m)
		worst = max(worst, c.distance(rows, g.Stride))
		if ids := choices(rows); !slices.Equal(ids, c.GreedyIDs) {
			t.Errorf("%s: tokens %v, want %v", c.ID, ids, c.GreedyIDs)
		}
	}
	t.Logf("%d prompts, logits within %.1e", len(g.Cases), worst)
	if worst > mostFloat {
		t.Errorf("logits are off by %v, at most %v is right", worst, mostFloat)
	}
}
