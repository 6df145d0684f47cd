package scheduler

import (
	"errors"
	"testing"
)

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

// TestLoweredLimitsLeaveSlots: limits that let more wait and fewer run, while many run, never let
// in more than the policies' table has slots for.
func TestLoweredLimitsLeaveSlots(t *testing.T) {
	limits := Limits{MaxSeqs: 4, TokenBudget: 32, MaxQueue: 4}
	s, err := New(Options{Limits: limits, PageSize: 4, Pages: 64, MaxModelLen: 64,
		PrefixPages: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	submit := func(id SequenceID) error {
		return s.Submit(Request{ID: id, Prompt: make([]int32, 8), MaxNew: 8})
	}
	step := func() {
		p := s.Plan(1, StepCosts{})
		s.Commit(p, make([]int32, len(p.Samples)), 1)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	for id := range SequenceID(4) {
		if err := submit(id); err != nil {
			t.Fatal(err)
		}
	}
	step()
	limits.MaxSeqs, limits.MaxQueue = 1, 7
	if err := s.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	for id := range SequenceID(7) {
		err := submit(10 + id)
		if full := id >= 4; errors.Is(err, ErrQueueFull) != full {
			t.Errorf("request %d beside 4 that run: %v", id, err)
		}
	}
	step()
}
