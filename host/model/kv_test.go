package model_test

import (
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// TestShortKV: with keys and values in two bytes the folders still give the reference's tokens. The
// logits move by what rounding takes: bf16 keeps eight bits of a number, f16 eleven.
func TestShortKV(t *testing.T) {
	for _, g := range goldens {
		if strings.HasSuffix(g.model, ".gguf") || strings.HasPrefix(g.model, "random/") {
			continue
		}
		t.Run(g.model, func(t *testing.T) {
			checkShortKV(t, g, gpu.F16, 0.03)
			checkShortKV(t, g, gpu.BF16, 0.3)
		})
	}
}

// checkShortKV feeds the reference's tokens. In f16 each must be the best one; in bf16 near ties
// may turn.
func checkShortKV(t *testing.T, r reference, dtype gpu.DType, tolerance float64) {
	const pageSize = 16
	m, err := model.Load(openDevice(t, cpu.Options{}), modelDir(t, r.model),
		model.Options{KV: dtype})
	if err != nil {
		t.Fatal(err)
	}
	if store, err := m.NewKV(8192/pageSize, pageSize); err != nil || store.DType() != dtype {
		t.Fatal(err, store.DType())
	}
	if c := m.Config(); int(c.Need(model.Options{KV: dtype}).Token)*2 !=
		int(c.Need(model.Options{}).Token) {
		t.Errorf("a token in %v does not take half of what it takes in f32", dtype)
	}
	worst := 0.0
	for _, c := range r.read(t).Cases {
		rows := c.forced(t, m, c.PromptIDs)
		for i, got := range choices(rows) {
			if want := c.GreedyIDs[i]; dtype == gpu.F16 && got != want {
				t.Errorf("%v: %q: token %d is %d, want %d", dtype, c.Prompt, i, got, want)
			}
		}
		worst = max(worst, c.distance(rows, 0))
	}
	if worst > tolerance {
		t.Errorf("%v: logits are off by %.3g, at most %g is rounding", dtype, worst, tolerance)
	}
	t.Logf("%v: logits are within %.1e", dtype, worst)
}
