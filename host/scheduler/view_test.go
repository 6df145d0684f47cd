package scheduler

import (
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// shown is a policy that keeps the last view it was shown.
type shown struct {
	FCFS
	header  abi.Header
	records []abi.Record
	changed []uint32
}

func (p *shown) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	p.header = v.Header
	p.records = append(p.records[:0], v.Records...)
	p.changed = append(p.changed[:0], v.Changed...)
	return p.FCFS.Decide(v, out)
}

func viewed(t *testing.T) (*Scheduler, *shown) {
	t.Helper()
	p := &shown{}
	s, err := New(Options{
		PageSize: 4, Pages: 40, MaxModelLen: 100, PrefixPages: -1, Role: abi.RoleAll, Seed: 7,
		KVBytesPerToken: 1024,
		Limits: Limits{
			MaxSeqs: 3, TokenBudget: 16, ChunkMax: 12, ChunkAlign: 2, MaxAdmit: 2, MaxPreempt: 5,
			ReservePages: 6, MaxQueue: 8,
		},
	}, p)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func next(s *Scheduler, now time.Duration) {
	p := s.Plan(now, StepCosts{
		LastStep: 3 * time.Millisecond, Fixed: 2 * time.Microsecond,
		PerToken: 5, PerContextTokenPS: 6, SendBacklogBytes: 7, LinkBytesPerUS: 8,
		Peers: []abi.Peer{{Index: 1}},
	})
	s.Commit(p, make([]int32, len(p.Samples)), now)
}

// TestHeader: every field has the value that its source says.
func TestHeader(t *testing.T) {
	s, p := viewed(t)
	for id := SequenceID(1); id <= 3; id++ {
		prompt := []int32{int32(id), 2, 3}
		if err := s.Submit(Request{ID: id, Prompt: prompt, MaxNew: 9}); err != nil {
			t.Fatal(err)
		}
	}
	next(s, 10)
	s.SetDraining(true)
	next(s, 20)
	got := p.header
	if got.Seed == 0 || got.Seed == stepSeed(7, 1) {
		t.Errorf("seed %d does not depend on the step", got.Seed)
	}
	got.Seed = 0
	want := abi.Header{
		Magic: abi.Magic, Minor: abi.Minor, HeaderSize: abi.HeaderSize,
		RecordStride: abi.RecordSize, DecisionStride: abi.DecisionSize,
		Step: 2, NowNS: 20, NSlots: 3, NChanged: 2, Flags: abi.FlagDraining,
		NWaiting: 1, NRunning: 2, FreePages: 38, TotalPages: 40, PageTokens: 4,
		TokenBudget: 16, ChunkMax: 12, ChunkAlign: 2, MaxSeqs: 3, MaxAdmit: 1,
		ReservePages: 8, DecisionsCap: 8, LastStepUS: 3000, Role: abi.RoleAll,
		SendBacklogBytes: 7, LinkBytesPerUS: 8, KVBytesPerToken: 1024,
		CostFixedUS: 2, CostTokenNS: 5, CostCtxPS: 6, DecodeTokens: 2,
		NTenants: 1, NPeers: 1,
	}
	if got != want {
		t.Errorf("header\n%+v, want\n%+v", got, want)
	}
}

// TestRecord follows one request through its life as policies see it.
func TestRecord(t *testing.T) {
	s, p := viewed(t)
	prompt := make([]int32, 20)
	for i := range prompt {
		prompt[i] = int32(i)
	}
	if err := s.Submit(Request{
		ID: 1<<40 + 5, Prompt: prompt, MaxNew: 9, Arrival: 3, Deadline: 99, Priority: -2, Tenant: 4,
		Class: 1, Peer: 6, PredictedOutput: 7, UserTag: 8,
		Group: 9,
	}); err != nil {
		t.Fatal(err)
	}
	record := abi.Record{
		ID: 1<<40 + 5, ArrivalNS: 3, DeadlineNS: 99, Priority: -2, Tenant: 4, Class: 1, Peer: 6,
		PredictedOutput: 7, UserTag: 8, PromptTokens: 20, MaxNew: 9,
		State: abi.StateLive, RemainingPrefill: 20, PagesNeeded: 5,
		Group: 9, PrefixHash: s.prefixHash(&Request{Prompt: prompt}),
	}
	check := func(when string) {
		t.Helper()
		if got := p.records[0]; got != record {
			t.Errorf("%s\n%+v, want\n%+v", when, got, record)
		}
	}
	next(s, 10)
	check("waiting")

	next(s, 20)
	record.State |= abi.StateRunning
	record.RemainingPrefill, record.PagesHeld, record.PagesNeeded = 8, 3, 2
	record.LastSchedNS, record.ServiceTokens = 10, 12
	check("prefilling")

	next(s, 30)
	record.State |= abi.StateDecoding | abi.StateFirstTokenSent
	record.RemainingPrefill, record.PagesHeld, record.PagesNeeded = 0, 5, 1
	record.Generated, record.FirstTokenNS, record.LastSchedNS, record.ServiceTokens = 1, 20, 20, 20
	check("decoding")

	s.preempt(s.held[0], abi.PreemptedMemory)
	next(s, 40)
	record.State = abi.StateLive | abi.StatePreempted | abi.StateFirstTokenSent
	record.Generated, record.LastSchedNS, record.ServiceTokens = 2, 30, 21
	record.CachedTokens, record.RemainingPrefill, record.PagesHeld = 21, 1, 0
	record.PagesNeeded, record.PreemptCount, record.Kind = 1, 1, abi.KindResumed
	check("preempted")

	if _, err := s.Cancel(1<<40 + 5); err != nil {
		t.Fatal(err)
	}
	if err := s.Submit(Request{ID: 1<<40 + 6, Prompt: prompt, MaxNew: 1}); err != nil {
		t.Fatal(err)
	}
	next(s, 50)
	if got := p.records[0]; got.ID != 1<<40+6 || len(p.changed) != 1 || p.changed[0] != 0 {
		t.Errorf("the slot was not reused: %+v, changed %v", got, p.changed)
	}
}

// TestResync: a policy that takes over is shown every live slot, once.
func TestResync(t *testing.T) {
	s, _ := viewed(t)
	for id := SequenceID(1); id <= 4; id++ {
		if err := s.Submit(Request{ID: id, Prompt: []int32{1, 2, 3}, MaxNew: 9}); err != nil {
			t.Fatal(err)
		}
	}
	next(s, 1)
	if _, err := s.Cancel(2); err != nil {
		t.Fatal(err)
	}
	p := &shown{}
	s.SetPolicy(p)
	next(s, 2)
	if flags := p.header.Flags; flags&abi.FlagResync == 0 || flags&abi.FlagSwap == 0 {
		t.Errorf("flags %b", flags)
	}
	if len(p.changed) != 3 || p.changed[0] != 0 || p.changed[1] != 2 || p.changed[2] != 3 {
		t.Errorf("changed %v, want 0 2 3", p.changed)
	}
	next(s, 3)
	if p.header.Flags&(abi.FlagResync|abi.FlagSwap) != 0 {
		t.Errorf("flags %b in the second step", p.header.Flags)
	}
}

// TestLimits: what cannot work is refused and leaves the old limits in force.
func TestLimits(t *testing.T) {
	s, _ := viewed(t)
	before := s.limits
	for _, l := range []Limits{
		{}, {MaxSeqs: 1, TokenBudget: 4}, {MaxSeqs: 1, TokenBudget: 4, MaxQueue: 1, ChunkAlign: 5},
		{MaxSeqs: 1, TokenBudget: 4, MaxQueue: 1, ReservePages: -1},
	} {
		if err := s.SetLimits(l); err == nil || s.limits != before {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if err := s.SetLimits(Limits{MaxSeqs: 50, TokenBudget: 4, MaxQueue: 100}); err != nil {
		t.Fatal(err)
	}
	for id := range SequenceID(100) {
		if err := s.Submit(Request{ID: id, Prompt: []int32{1, int32(id)}, MaxNew: 2}); err != nil {
			t.Fatal(err)
		}
	}
	next(s, 1)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
