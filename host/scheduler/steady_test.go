package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
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

// TestNoAllocationsWithAll: tables of tenants, peers and events, 10,000 requests waiting, refusals
// and skips in every step: nothing of it allocates.
func TestNoAllocationsWithAll(t *testing.T) {
	s := steady(t, 64, 10000, 40, 0)
	p := &scripted{flags: abi.DescMayFill}
	s.SetPolicy(&quiet{p})
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		for slot := range uint32(120) {
			r := &v.Records[slot]
			d := abi.Decision{Slot: slot, IDLow: uint32(r.ID), Tokens: abi.TokensAuto}
			switch {
			case r.State&abi.StateDecoding != 0 && slot%7 == 0:
				d.Action = abi.ActionSkip
			case r.State&abi.StateDecoding == 0 && len(out) >= 64:
				continue
			}
			out = append(out, d)
		}
		return out[:min(len(out), int(v.Header.DecisionsCap))]
	}
	sampled := make([]int32, 64)
	now := time.Duration(1)
	peers := make([]Peer, 4)
	step := func() {
		now++
		plan := s.Plan(now, StepCosts{Peers: peers})
		s.SetLease(SequenceID(now%64), now+time.Second)
		s.Commit(plan, sampled[:len(plan.Samples)], now)
	}
	for range 2000 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n > 0.5 {
		t.Errorf("%.1f allocations a step", n)
	}
	if s.Stats().States[Decoding] != 64 || s.plan.Decision.Fallback {
		t.Fatalf("%+v %+v", s.Stats(), s.plan.Decision)
	}
}

// quiet is a scripted policy that keeps no events.
type quiet struct{ *scripted }

func (q *quiet) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	return q.decide(v, out), nil
}

// BenchmarkManyWaiting is what the scheduler itself costs a step, without a policy's own work, as
// the queue grows: what it must not do is look at all of it.
func BenchmarkManyWaiting(b *testing.B) {
	for _, waiting := range []int{0, 1000, 10000} {
		for name, policy := range map[string]Policy{
			"none": policyFunc(func(_ *abi.View, out []abi.Decision) ([]abi.Decision, error) {
				return out, nil
			}), "fcfs": &FCFS{},
		} {
			b.Run(fmt.Sprintf("%s,waiting=%d", name, waiting), func(b *testing.B) {
				s := steady(b, 64, waiting, 40, 0)
				sampled := make([]int32, 64)
				now := time.Duration(1)
				turn1(s, sampled, now)
				s.SetPolicy(policy)
				for b.Loop() {
					now++
					turn1(s, sampled, now)
				}
			})
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
