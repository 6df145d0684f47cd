package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// steady is a scheduler with so many running decodes and so many requests waiting.
func steady(t testing.TB, running, waiting, promptTokens, window int) *Scheduler {
	t.Helper()
	s, err := New(Options{
		PageSize: 16, Pages: 1 << 15, MaxModelLen: 1 << 15, PrefixPages: -1, Window: window,
		Limits: Limits{
			MaxSeqs: running, TokenBudget: 1 << 16, MaxQueue: running + waiting, HardAge: time.Hour,
			MaxIdleSteps: 50, MaxEmptySteps: 16,
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range running + waiting {
		prompt := make([]int32, promptTokens)
		for k := range prompt {
			prompt[k] = int32(i*promptTokens + k)
		}
		if err := s.Submit(Request{ID: SequenceID(i), Prompt: prompt, MaxNew: 20000}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// turn1 runs a step without a model.
func turn1(s *Scheduler, sampled []int32, now time.Duration) {
	p := s.Plan(now, StepCosts{})
	for i := range p.Samples {
		sampled[i] = int32(now)
	}
	s.Commit(p, sampled[:len(p.Samples)], now)
}

// TestNoAllocations: a step of decodes, with others waiting, allocates nothing but the growth of
// output and page tables.
func TestNoAllocations(t *testing.T) {
	for _, window := range []int{0, 100} {
		noAllocations(t, window)
	}
}

func noAllocations(t *testing.T, window int) {
	t.Helper()
	s := steady(t, 64, 100, 40, window)
	sampled := make([]int32, 64)
	now := time.Duration(1)
	for range 2000 { // Past the first doublings of everything.
		now++
		turn1(s, sampled, now)
	}
	if n := testing.AllocsPerRun(100, func() { now++; turn1(s, sampled, now) }); n > 0.5 {
		t.Errorf("%.1f allocations a step with a window of %d", n, window)
	}
	if s.Stats().States[Decoding] != 64 {
		t.Fatalf("%+v", s.Stats())
	}
}

// TestRepeats: the same events give the same plans.
func TestRepeats(t *testing.T) {
	for n := uint64(1); n <= 20; n++ {
		var runs [2]string
		for k := range runs {
			marks := map[string]int{}
			w := newWorld(n, marks)
			for range 60 {
				if err := w.act(); err != nil {
					t.Fatal(err)
				}
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
				runs[k] += fmt.Sprintln(w.s.plan.Chunks, w.s.plan.Grants, w.s.Stats())
			}
		}
		if runs[0] != runs[1] {
			t.Fatalf("seed %d: two runs differ", n)
		}
	}
}

func BenchmarkDecodeStep(b *testing.B) {
	for _, c := range []struct{ running, waiting int }{{1, 0}, {64, 0}, {64, 512}, {256, 512}} {
		b.Run(fmt.Sprintf("running=%d,waiting=%d", c.running, c.waiting), func(b *testing.B) {
			s := steady(b, c.running, c.waiting, 40, 0)
			sampled := make([]int32, c.running)
			now := time.Duration(1)
			turn1(s, sampled, now)
			for b.Loop() {
				now++
				turn1(s, sampled, now)
				if now%1000 == 0 { // Start over before the pages run out.
					b.StopTimer()
					s = steady(b, c.running, c.waiting, 40, 0)
					turn1(s, sampled, now)
					b.StartTimer()
				}
			}
		})
	}
}
