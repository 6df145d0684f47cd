package model_test

import (
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// gapTolerance is how close two logits may be, over the largest distance of any two in the row,
// before rows rounded to bf16 may put them in another order. What a step of bf16 does to a sum of
// so many layers is about a hundredth of it.
const gapTolerance = 0.03

// TestCUDA: a model computes the same tokens through the GPU's device, on the driver in plain Go,
// as on the processor.
func TestCUDA(t *testing.T) {
	for _, name := range []string{"stories260k/hf-bf16", "random/qwen3", "random/gemma3",
		"random/mixtral"} {
		t.Run(name, func(t *testing.T) {
			driver, _ := fake.New(fake.Options{Seed: 1})
			device, err := cuda.Open(driver, cuda.Options{Type: gpu.BF16})
			if err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			sameTokens(t, device, reference{model: name, golden: goldenOf(name)}, 24)
		})
	}
}

// goldenOf is the golden file of a model; "" lies beside it.
func goldenOf(name string) string {
	i := slices.IndexFunc(goldens, func(r reference) bool { return r.model == name })
	return goldens[i].golden
}

// sameTokens gives both devices the reference's tokens, and wants the same choice after each,
// unless the two best are closer than rounding explains. The prompt comes in two chunks, so that
// its end sees keys of both. Experts are chosen by the CPU's scores on both: where two are so near
// that rounding takes the other one, all that follows differs, and no gap of logits shows it.
func sameTokens(t *testing.T, device gpu.Device, r reference, most int) {
	t.Helper()
	const pageSize = 16
	leader := &routed{Device: openDevice(t, cpu.Options{FloatActivations: true})}
	follower := &routed{Device: device, leader: leader}
	onGPU := loadModel(t, follower, r.model, pageSize)
	onCPU := loadModel(t, leader, r.model, pageSize)
	for _, d := range []*routed{leader, follower} {
		d.experts, d.chosen = onCPU.Config().Experts, onCPU.Config().Chosen
	}
	worst, differ := 0.0, 0
	for _, c := range r.read(t).Cases {
		greedy := c.GreedyIDs[:min(len(c.GreedyIDs), most)]
		got := newSequence(t, onGPU, pageSize, 1, len(c.PromptIDs)+len(greedy))
		want := newSequence(t, onCPU, pageSize, 1, len(c.PromptIDs)+len(greedy))
		chunk := (len(c.PromptIDs) + 1) / 2
		b, a := want.run(c.PromptIDs, chunk), got.run(c.PromptIDs, chunk)
		x, y := a[len(a)-1], b[len(b)-1]
		for i, id := range greedy {
			off, gap := apart(x, y)
			if worst = max(worst, off); off > gapTolerance {
				t.Fatalf("%q, token %d: a logit is off by %.3f of their range", c.Prompt, i, off)
			}
			if argmax(x) != argmax(y) {
				if differ++; gap > gapTolerance {
					t.Fatalf("%q, token %d: %d, want %d, which leads by %.3f of the range",
						c.Prompt, i, argmax(x), argmax(y), gap)
				}
			}
			if i < len(greedy)-1 {
				y, x = want.run([]int32{id}, 1)[0], got.run([]int32{id}, 1)[0]
			}
		}
	}
	follower.explained(t)
	t.Logf("logits are within %.4f of their range; %d choices differ, each within %.2f", worst,
		differ, gapTolerance)
}

// apart is the largest difference of two rows, and the lead of the best of want, both over the
// range of want.
func apart(got, want []float32) (off, gap float64) {
	low, first, second := want[0], want[0], float32(0)
	for i, w := range want {
		off = max(off, float64(max(got[i]-w, w-got[i])))
		low, first = min(low, w), max(first, w)
	}
	second = low
	best := argmax(want)
	for i, w := range want {
		if int32(i) != best {
			second = max(second, w)
		}
	}
	width := float64(first - low)
	return off / width, float64(first-second) / width
}
