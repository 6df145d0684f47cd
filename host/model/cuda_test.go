package model_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// The tolerances are how close two logits may be, over the largest distance of any two in the row,
// before rows rounded to bf16 may put them in another order, and how far a logit may be off. What a
// step of bf16 does to a sum of so many layers is about a hundredth of it, in a trained model;
// random weights leave less distance.
const (
	gapTolerance    = 0.02
	randomTolerance = 0.03
)

func (r reference) tolerance() float64 {
	if strings.HasPrefix(r.model, "random/") {
		return randomTolerance
	}
	return gapTolerance
}

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

// TestCUDAMistakes: the comparison calls out what rounding does not explain.
func TestCUDAMistakes(t *testing.T) {
	findMistakes(t, fakeGPU(t), "random/qwen3")
}

// findMistakes makes one mistake after another on a device that has all else right. Two of them
// change less than rounding does, and are not to be found.
func findMistakes(t *testing.T, device gpu.Device, name string) {
	t.Helper()
	r := reference{model: name, golden: goldenOf(name)}
	all := mistakesIn(loadModel(t, openDevice(t, cpu.Options{}), name, 16).Config())
	delete(all, "two BOS") // No device's.
	hidden := []string{"nothing", "epsilon ten times", "exact GELU"}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		d := compare(t, &faulty{Device: device, mistake: all[what]}, r, 5)
		t.Logf("%s: %s: logits off by %.3f, %d of %d choices turn", name, what, d.off, d.turned,
			d.choices)
		if called := d.unexplained != ""; called == slices.Contains(hidden, what) {
			t.Errorf("%s: %s: called out: %v", name, what, called)
		}
	}
}

// TestUnexplained: one logit that is off, a NaN, and a choice that leads clearly.
func TestUnexplained(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		got, want []float32
		explained bool
	}{
		{[]float32{0, 50, 100}, []float32{0, 50, 100}, true},
		{[]float32{0, 99.5, 99}, []float32{0, 99, 100}, true},
		{[]float32{0, 100, 97}, []float32{0, 97, 100}, false},
		{[]float32{5, 50, 100}, []float32{0, 50, 100}, false},
		{[]float32{nan, 50, 100}, []float32{0, 50, 100}, false},
	} {
		var d differences
		if d.add(c.got, c.want, gapTolerance, "here"); (d.unexplained == "") != c.explained {
			t.Errorf("%v for %v: %q", c.got, c.want, d.unexplained)
		}
	}
}

// goldenOf is the golden file of a model; "" lies beside it.
func goldenOf(name string) string {
	i := slices.IndexFunc(goldens, func(r reference) bool { return r.model == name })
	return goldens[i].golden
}

// sameTokens wants no difference that rounding does not explain.
func sameTokens(t *testing.T, device gpu.Device, r reference, most int) {
	t.Helper()
	d := compare(t, device, r, most)
	if d.unexplained != "" {
		t.Error(d.unexplained)
	}
	t.Logf("%d choices: logits are within %.4f of their range; %d choices differ, over leads of "+
		"at most %.4f", d.choices, d.off, d.turned, d.gap)
}

// differences are those of a device from the CPU.
type differences struct {
	choices, turned int
	off, gap        float64 // the largest of a logit, and of a lead that was overturned
	unexplained     string  // the first that rounding does not explain
}

// compare gives both devices the reference's tokens, up to so many of each prompt, and compares the
// choice after each: a difference is explained where the two best are closer than rounding may
// move them. The prompt comes in two chunks, so that its end sees keys of both. Experts are chosen
// by the CPU's scores on both: where two are so near that rounding takes the other one, all that
// follows differs, and no gap of logits shows it.
func compare(t *testing.T, device gpu.Device, r reference, most int) (d differences) {
	t.Helper()
	const pageSize = 16
	leader := &routed{Device: openDevice(t, cpu.Options{FloatActivations: true})}
	follower := &routed{Device: device, leader: leader}
	onGPU := loadModel(t, follower, r.model, pageSize)
	onCPU := loadModel(t, leader, r.model, pageSize)
	for _, d := range []*routed{leader, follower} {
		d.experts, d.chosen = onCPU.Config().Experts, onCPU.Config().Chosen
	}
	for _, c := range r.read(t).Cases {
		greedy := c.GreedyIDs[:min(len(c.GreedyIDs), most)]
		got := newSequence(t, onGPU, pageSize, 1, len(c.PromptIDs)+len(greedy))
		want := newSequence(t, onCPU, pageSize, 1, len(c.PromptIDs)+len(greedy))
		chunk := (len(c.PromptIDs) + 1) / 2
		b, a := want.run(c.PromptIDs, chunk), got.run(c.PromptIDs, chunk)
		x, y := a[len(a)-1], b[len(b)-1]
		for i, id := range greedy {
			d.add(x, y, r.tolerance(), fmt.Sprintf("%q, token %d", c.Prompt, i))
			if i < len(greedy)-1 {
				y, x = want.run([]int32{id}, 1)[0], got.run([]int32{id}, 1)[0]
			}
		}
	}
	follower.explained(t, r.tolerance())
	return d
}

// add compares one row of logits with what the CPU has.
func (d *differences) add(got, want []float32, tolerance float64, at string) {
	off, gap := apart(got, want)
	d.choices++
	d.off = max(d.off, off)
	problem := ""
	if !(off <= tolerance) {
		problem = fmt.Sprintf("%s: a logit is off by %.3f of their range", at, off)
	}
	if argmax(got) != argmax(want) {
		d.turned++
		d.gap = max(d.gap, gap)
		if gap > tolerance {
			problem = fmt.Sprintf("%s: %d, want %d, which leads by %.3f of the range", at,
				argmax(got), argmax(want), gap)
		}
	}
	if d.unexplained == "" {
		d.unexplained = problem
	}
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
