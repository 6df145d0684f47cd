package scheduler

import "testing"

// TestAlignmentWaitsForNobody: limits that arrive while a request is half prefilled never keep it
// from going on, however long the units of its chunks would have to be.
func TestAlignmentWaitsForNobody(t *testing.T) {
	limits := Limits{MaxSeqs: 2, TokenBudget: 32, MaxQueue: 4}
	s, err := New(Options{Limits: limits, PageSize: 1, Pages: 8, MaxModelLen: 64,
		PrefixPages: -1, Window: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Submit(Request{ID: 1, Prompt: make([]int32, 40), MaxNew: 1}); err != nil {
		t.Fatal(err)
	}
	p := s.Plan(1, StepCosts{})
	s.Commit(p, make([]int32, len(p.Samples)), 1)
	limits.ChunkAlign = 16
	if err := s.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		p := s.Plan(2, StepCosts{})
		s.Commit(p, make([]int32, len(p.Samples)), 2)
		if len(p.Samples) > 0 {
			return
		}
	}
	info, _ := s.Info(1)
	t.Fatalf("it got no further than %+v", info)
}
