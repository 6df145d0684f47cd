package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// realGolden is one file of reference outputs of a real model, in float64 on the dequantised
// weights.
type realGolden struct {
	Stride int `json:"logits_sample_stride"` // Sample is every so-manieth logit
	Cases  []struct {
		ID        string         `json:"id"`
		PromptIDs []int32        `json:"prompt_ids"`
		GreedyIDs []int32        `json:"greedy_ids"`
		Sample    []float32      `json:"logits_last_prompt_pos_sample"`
		Top       [][][2]float64 `json:"step_top5"` // of each step: token, logit
		Total     []float64      `json:"step_logsumexp"`
	} `json:"cases"`
}

// realModels are the two real models, by their goldens.
var realModels = map[string]string{
	"SmolLM2-135M-Instruct.Q4_1.gguf": "smollm2-135m-instruct-q4_1.json",
	"gemma-3-270m-q4_k_m.gguf":        "gemma3-270m-q4_k_m.json",
}

// eachReal runs a test on both real models where ENGINE_REAL_MODELS names the folder that holds
// their files.
func eachReal(t *testing.T, o cpu.Options, check func(*testing.T, *model.Model, *realGolden)) {
	folder := os.Getenv("ENGINE_REAL_MODELS")
	if folder == "" {
		t.Skip("ENGINE_REAL_MODELS is not set")
	}
	for name, golden := range realModels {
		t.Run(name, func(t *testing.T) {
			var g realGolden
			data, err := os.ReadFile(filepath.Join(sharedDir(t), "real", golden))
			if err == nil {
				err = json.Unmarshal(data, &g)
			}
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(openDevice(t, o), filepath.Join(folder, name), model.Options{})
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
func TestRealModels(t *testing.T) { eachReal(t, cpu.Options{FloatActivations: true}, checkReal) }

// TestRealModelsInt8: with 8-bit activations the model moves by as much as the goldens' readme
// allows. The reference's own tokens lead, so that one other choice does not make all that follow
// another text.
func TestRealModelsInt8(t *testing.T) { eachReal(t, cpu.Options{}, checkForced) }

func checkForced(t *testing.T, m *model.Model, g *realGolden) {
	const (
		fewest = 57   // equal choices of 64
		most   = 0.02 // mean divergence
	)
	for _, c := range g.Cases {
		s := newSequence(t, m, 16, 0, len(c.PromptIDs)+len(c.GreedyIDs))
		rows := s.run(c.PromptIDs, 512)
		last, equal, divergence := rows[len(rows)-1], 0, 0.0
		for step, id := range c.GreedyIDs {
			if argmax(last) == id {
				equal++
			}
			divergence += divergenceOf(last, c.Top[step], c.Total[step])
			if step+1 < len(c.GreedyIDs) {
				last = s.run([]int32{id}, 1)[0]
			}
		}
		divergence /= float64(len(c.GreedyIDs))
		t.Logf("%s: %d of %d choices equal, divergence %.4f", c.ID, equal, len(c.GreedyIDs),
			divergence)
		if equal < fewest || divergence > most || divergence <= 0 {
			t.Errorf("%s: %d choices equal, divergence %v; at least %d and at most %v are right",
				c.ID, equal, divergence, fewest, most)
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

func checkReal(t *testing.T, m *model.Model, g *realGolden) {
	const most = 0.002 // what the goldens' readme allows an engine that computes in float32
	worst := 0.0
	for _, c := range g.Cases {
		s := newSequence(t, m, 16, 0, len(c.PromptIDs)+len(c.GreedyIDs))
		rows := s.run(c.PromptIDs, 512)
		last := rows[len(rows)-1]
		for i, want := range c.Sample {
			worst = max(worst, math.Abs(float64(last[i*g.Stride]-want)))
		}
		var ids []int32
		for step := range c.GreedyIDs {
			for _, top := range c.Top[step] {
				worst = max(worst, math.Abs(float64(last[int(top[0])])-top[1]))
			}
			ids = append(ids, argmax(last))
			if step+1 < len(c.GreedyIDs) {
				last = s.run(ids[step:], 1)[0]
			}
		}
		if !slices.Equal(ids, c.GreedyIDs) {
			t.Errorf("%s: tokens %v, want %v", c.ID, ids, c.GreedyIDs)
		}
	}
	t.Logf("%d prompts, logits within %.1e", len(g.Cases), worst)
	if worst > most {
		t.Errorf("logits are off by %v, at most %v is right", worst, most)
	}
}
