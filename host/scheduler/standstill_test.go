package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// nothingToDo is a policy that never lets a prompt go on.
func nothingToDo(_ *abi.View, out []abi.Decision) ([]abi.Decision, error) { return out, nil }

// fullOfDecodes is a scheduler in which 5 requests decode with this budget and this unit, for so
// many tokens each, and a reservation and a prompt wait that have all the pages they want.
func fullOfDecodes(t *testing.T, budget, align, tokens int) *Scheduler {
	t.Helper()
	limits := Limits{MaxSeqs: 16, TokenBudget: 64, MaxQueue: 16, MaxEmptySteps: 16}
	s, err := New(Options{Limits: limits, PageSize: 4, Pages: 400, MaxModelLen: 200,
		PrefixPages: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	submit := func(r Request) {
		t.Helper()
		r.MaxNew = tokens
		if err := s.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	for id := range SequenceID(5) {
		submit(Request{ID: 1 + id, Prompt: make([]int32, 8)})
	}
	p := s.Plan(1, StepCosts{})
	s.Commit(p, make([]int32, len(p.Samples)), 1)
	if n := s.Stats().States[Decoding]; n != 5 {
		t.Fatalf("%d requests decode", n)
	}
	submit(Request{ID: 6, Kind: PrepareReceive, Prompt: make([]int32, 60), End: 59, Arrival: 2})
	submit(Request{ID: 7, Prompt: make([]int32, 60), Arrival: 3})
	limits.TokenBudget, limits.ChunkAlign = budget, align
	if err := s.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStandstill: who lets nothing prefill is at fault only while decodes leave a unit of the
// budget, which is when fcfs would name somebody.
func TestStandstill(t *testing.T) {
	for _, c := range []struct {
		name          string
		budget, align int
		fault         bool
	}{
		{"decodes want more than all of it", 4, 1, false},
		{"decodes take all of it", 5, 1, false},
		{"decodes leave a token", 6, 1, true},
		{"decodes leave less than a unit", 8, 4, false},
		{"decodes leave a unit", 9, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []struct {
				policy Policy
				fault  bool
			}{{&FCFS{}, false}, {policyFunc(nothingToDo), c.fault}} {
				s := fullOfDecodes(t, c.budget, c.align, 100)
				s.SetPolicy(p.policy)
				for step := range 40 {
					plan := s.Plan(time.Duration(4+step), StepCosts{})
					d := plan.Decision
					if want := p.fault && step == 16; d.Fallback != want {
						t.Fatalf("step %d of %T: fallback %t: %v", step, p.policy, d.Fallback,
							d.Err)
					} else if want && !strings.Contains(d.Err.Error(), "17 answers in a row") {
						t.Errorf("the fault says %q", d.Err)
					}
					if p.fault && step == 16 {
						break
					}
					s.Commit(plan, make([]int32, len(plan.Samples)), time.Duration(4+step))
				}
			}
		})
	}
}

// TestDecodesEndAndOthersStart: decodes that take all of the budget keep prompts waiting, but not
// for ever: nobody joins them meanwhile, so that the first that end leave budget, and all are
// served.
func TestDecodesEndAndOthersStart(t *testing.T) {
	for _, hardAge := range []time.Duration{0, 20} {
		const tokens = 50
		s := fullOfDecodes(t, 4, 1, tokens)
		limits := s.limits
		limits.HardAge = hardAge
		if err := s.SetLimits(limits); err != nil {
			t.Fatal(err)
		}
		s.SetPolicy(&FCFS{})
		counts, granted, now := map[SequenceID]int{}, time.Duration(0), time.Duration(3)
		for now < 1000 && s.Work() {
			now++
			p := s.Plan(now, StepCosts{})
			if p.Decision.Fallback {
				t.Fatalf("step %d: %v", now, p.Decision.Err)
			}
			samples := append([]SequenceID(nil), p.Samples...)
			grants := append([]Grant(nil), p.Grants...)
			s.Commit(p, make([]int32, len(samples)), now)
			for _, g := range grants {
				granted = now
				deliver(t, s, g)
			}
			for _, id := range samples {
				if counts[id]++; counts[id] == tokens-1 && id < 6 || counts[id] == tokens {
					if err := s.Finish(id, ReasonLength); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if s.Work() || counts[6] != tokens || counts[7] != tokens {
			t.Errorf("hard age %d: after %d steps: %v, %+v", hardAge, now, counts, s.Stats())
		}
		// Nothing is computed for a reservation, so that age alone gets it its pages.
		if early := granted <= 3+hardAge; early != (hardAge > 0) {
			t.Errorf("hard age %d: pages were reserved at %d", hardAge, granted)
		}
	}
}

// deliver is a sender that writes at once all that was reserved.
func deliver(t *testing.T, s *Scheduler, g Grant) {
	t.Helper()
	if err := s.Delivered(g.ID, g.End); err != nil {
		t.Fatal(err)
	}
	if err := s.StartGenerate(g.ID, g.End); err != nil {
		t.Fatal(err)
	}
}
