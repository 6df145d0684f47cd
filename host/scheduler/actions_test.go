package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// scripted is a policy that may do anything and says what a test tells it.
type scripted struct {
	flags  uint32
	decide func(v *abi.View, out []abi.Decision) []abi.Decision
	events []abi.Event
}

func (p *scripted) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	p.events = append(p.events, v.Events...)
	if p.decide == nil {
		return out, nil
	}
	return p.decide(v, out), nil
}

func (p *scripted) Answered() (string, uint64, uint32) {
	return "scripted", abi.CapChunkLengths | abi.CapPreempt | abi.CapShed, p.flags
}

// act makes a decision about the request of an ID.
func act(v *abi.View, id uint64, action uint8, tokens uint32) abi.Decision {
	for slot := range v.Records {
		if r := &v.Records[slot]; r.State != 0 && r.ID == id {
			return abi.Decision{Slot: uint32(slot), IDLow: uint32(id), Action: action,
				Tokens: tokens, Reason: uint16(id)}
		}
	}
	panic(fmt.Sprintf("request %d is not shown", id))
}

// stage is a scheduler of ten pages of four tokens under a scripted policy.
func stage(t *testing.T, l Limits) (*Scheduler, *scripted) {
	t.Helper()
	if l.MaxSeqs == 0 {
		l.MaxSeqs = 4
	}
	l.TokenBudget, l.MaxQueue = 64, 16
	p := &scripted{}
	s, err := New(Options{PageSize: 4, Pages: 10, MaxModelLen: 36, PrefixPages: -1, Limits: l}, p)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// enter submits requests of a tenant, each of so many tokens of its own, numbered from first.
func enter(t *testing.T, s *Scheduler, first, tenant int, lengths ...int) {
	t.Helper()
	for i, n := range lengths {
		prompt := make([]int32, n)
		for k := range prompt {
			prompt[k] = int32(1000*(first+i) + k)
		}
		if err := s.Submit(Request{ID: SequenceID(first + i), Prompt: prompt, MaxNew: 8,
			Arrival: time.Duration(first + i), Tenant: uint32(tenant)}); err != nil {
			t.Fatal(err)
		}
	}
}

// once plans and commits a step and says who computed what.
func once(t *testing.T, s *Scheduler) string {
	t.Helper()
	p := s.Plan(s.now+time.Millisecond, StepCosts{})
	var out []string
	for _, c := range p.Chunks {
		out = append(out, fmt.Sprintf("%d:%d", c.ID, c.End-c.Start))
	}
	for _, id := range p.Preempted {
		out = append(out, fmt.Sprintf("-%d", id))
	}
	for _, shed := range p.Shed {
		out = append(out, fmt.Sprintf("shed %d for %d", shed.ID, shed.Reason))
	}
	if p.Decision.Fallback {
		out = append(out, "fallback: "+p.Decision.Err.Error())
	}
	s.Commit(p, make([]int32, len(p.Samples)), s.now)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func runAll(v *abi.View, out []abi.Decision) []abi.Decision {
	return listed(v, out, func(r *abi.Record) uint32 {
		if r.State&abi.StateDecoding == 0 && r.RemainingPrefill == 0 {
			return 0
		}
		return abi.TokensAuto
	})
}

// TestPreemptPaysForWhatFollows: a preemption frees pages for the runs behind it in the list, not
// for one before it; what was preempted goes on where it was.
func TestPreemptPaysForWhatFollows(t *testing.T) {
	for _, before := range []bool{true, false} {
		s, p := stage(t, Limits{MaxPreempt: 1})
		enter(t, s, 1, 0, 24)
		p.decide = runAll
		if got := once(t, s); got != "1:24" {
			t.Fatal(got)
		}
		once(t, s)
		enter(t, s, 2, 0, 24)
		p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
			preempt := act(v, 1, abi.ActionPreemptRecompute, 0)
			run := act(v, 2, abi.ActionRun, abi.TokensAuto)
			if before {
				return append(out, preempt, run)
			}
			return append(out, run, preempt)
		}
		want := map[bool]string{true: "2:24 -1", false: "-1"}[before]
		if got := once(t, s); got != want {
			t.Errorf("preempt stands first %t: %q, want %q", before, got, want)
		}
		if info, _ := s.Info(1); info.State != Waiting || info.Generated != 2 ||
			info.Preempted != 1 {
			t.Errorf("%+v", info)
		}
		if _, err := s.Cancel(2); err != nil {
			t.Fatal(err)
		}
		p.decide = runAll
		once(t, s)
		if info, _ := s.Info(1); info.State != Decoding || info.Generated != 3 {
			t.Errorf("it did not go on with its third token: %+v", info)
		}
	}
}

// refusals lists why decisions were not carried out: "id why".
func refusals(events []abi.Event) []string {
	var out []string
	for _, e := range events {
		if e.Kind == abi.EventDecisionRefused {
			out = append(out, fmt.Sprintf("%d %s", e.ID, abi.RefusalName(e.Extra)))
		}
	}
	return out
}

// TestPreemptIsBounded: by max_preempt, by the starvation guard, and to what holds pages.
func TestPreemptIsBounded(t *testing.T) {
	s, p := stage(t, Limits{MaxPreempt: 1, HardAge: 10 * time.Millisecond})
	enter(t, s, 1, 0, 4, 4)
	p.decide = runAll
	once(t, s)
	both := func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 1, abi.ActionPreemptRecompute, 0),
			act(v, 2, abi.ActionPreemptRecompute, 0))
	}
	p.decide, p.events = both, nil
	if got := once(t, s); got != "2:1 -1" {
		t.Errorf("%q", got)
	}
	p.decide = nil
	once(t, s)
	if got := refusals(p.events); !slices.Equal(got, []string{"2 max_preempt"}) {
		t.Errorf("refused %v", got)
	}
	for range 10 { // Past the hard age of the first, which nobody lists.
		once(t, s)
	}
	if info, _ := s.Info(1); info.State != Decoding {
		t.Fatalf("not put first: %+v", info)
	}
	p.events = nil
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 1, abi.ActionPreemptRecompute, 0))
	}
	once(t, s)
	p.decide = nil
	once(t, s)
	if got := refusals(p.events); !slices.Equal(got, []string{"1 guarded"}) {
		t.Errorf("refused %v", got)
	}
}

// TestShed: a request is refused for good as long as nothing of it has come.
func TestShed(t *testing.T) {
	s, p := stage(t, Limits{})
	enter(t, s, 1, 0, 8, 8, 8)
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 2, abi.ActionShed, 0), act(v, 1, abi.ActionRun, 8),
			act(v, 3, abi.ActionRun, 4))
	}
	if got := once(t, s); got != "1:8 3:4 shed 2 for 2" {
		t.Errorf("%q", got)
	}
	if _, there := s.State(2); there {
		t.Error("the shed request is still there")
	}
	p.events = nil
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 1, abi.ActionShed, 0), act(v, 3, abi.ActionShed, 0))
	}
	if got := once(t, s); got != "1:1 shed 3 for 3" {
		t.Errorf("%q", got)
	}
	p.decide = nil
	once(t, s)
	if got := refusals(p.events); !slices.Equal(got, []string{"1 begun"}) {
		t.Errorf("refused %v", got)
	}
}

// TestFill: what a policy leaves of the budget is left, unless its descriptor lets the host fill
// it, first come first served and without what was skipped.
func TestFill(t *testing.T) {
	for flags, want := range map[uint32]string{0: "3:4", abi.DescMayFill: "3:4 1:4 4:4"} {
		s, p := stage(t, Limits{})
		p.flags = flags
		enter(t, s, 1, 0, 4, 4, 4, 4)
		p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
			return append(out, act(v, 2, abi.ActionSkip, 0), act(v, 3, abi.ActionRun, 4))
		}
		if got := once(t, s); got != want {
			t.Errorf("flags %d: %q, want %q", flags, got, want)
		}
	}
}

// TestTenantBound: a tenant at its bound is passed over, and those behind it in the queue are not
// held up, though the policy's list ends with what it meant for that tenant.
func TestTenantBound(t *testing.T) {
	s, _ := stage(t, Limits{})
	s.SetPolicy(nil)
	s.SetTenant(1, 2000, 1)
	enter(t, s, 1, 1, 4, 8, 20, 20)
	enter(t, s, 5, 2, 4, 4)
	if got := once(t, s); got != "1:4 5:4 6:4" {
		t.Errorf("%q", got)
	}
	if tenants := s.tenants; tenants[1].Running != 1 || tenants[1].Waiting != 3 ||
		tenants[1].WeightMilli != 2000 || tenants[2].WeightMilli != 1000 ||
		tenants[1].ServiceTokens != 4 || tenants[2].ServiceTokens != 8 {
		t.Errorf("%+v", tenants)
	}
	if err := s.Finish(1, ReasonStop); err != nil {
		t.Fatal(err)
	}
	if got := once(t, s); !strings.Contains(got, "2:8") {
		t.Errorf("the tenant's next did not follow: %q", got)
	}
}

// TestEvents: a life is told in order, to whoever is asked next.
func TestEvents(t *testing.T) {
	s, p := stage(t, Limits{MaxPreempt: 1})
	enter(t, s, 1, 0, 8)
	p.decide = runAll
	once(t, s)
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 1, abi.ActionPreemptRecompute, 0))
	}
	once(t, s)
	p.decide = runAll
	once(t, s)
	if err := s.Finish(1, ReasonLength); err != nil {
		t.Fatal(err)
	}
	enter(t, s, 2, 0, 8)
	if _, err := s.Cancel(2); err != nil {
		t.Fatal(err)
	}
	enter(t, s, 3, 0, 8)
	once(t, s)
	var got []string
	for _, e := range p.events {
		got = append(got, fmt.Sprintf("%d/%d id=%d slot=%d tokens=%d", e.Kind, e.Reason, e.ID,
			int32(e.Slot), e.Tokens))
	}
	want := []string{
		"4/0 id=1 slot=0 tokens=0", "7/0 id=1 slot=-1 tokens=8",
		"3/1 id=1 slot=0 tokens=8",
		"4/0 id=1 slot=0 tokens=8", "7/0 id=3 slot=-1 tokens=1",
		"1/1 id=1 slot=0 tokens=2", "2/2 id=2 slot=-1 tokens=0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range 3 * abi.LimitEvents { // Nobody asks, and nothing grows.
		s.happened(abi.EventCancelled, s.byID[3], abi.Event{})
	}
	if n := len(s.events.list); n > abi.LimitEvents || s.events.lost == 0 ||
		int(s.events.lost)+n < 3*abi.LimitEvents {
		t.Errorf("%d events kept, %d lost", n, s.events.lost)
	}
}

// TestDoomed: what is being cancelled is shown so and not computed.
func TestDoomed(t *testing.T) {
	s, p := stage(t, Limits{})
	enter(t, s, 1, 0, 8, 8)
	s.Doom(1)
	var state uint32
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		state = v.Records[0].State
		return append(out, act(v, 1, abi.ActionRun, abi.TokensAuto), act(v, 2, abi.ActionRun, 8))
	}
	if got := once(t, s); got != "2:8" || state&abi.StateCancelPending == 0 {
		t.Errorf("%q, state %b", got, state)
	}
}

// TestLease: what is left is shown in steps, so that a lease is not a change in every step.
func TestLease(t *testing.T) {
	s, p := stage(t, Limits{})
	if err := s.Submit(Request{ID: 1, Kind: PrepareReceive, Prompt: make([]int32, 9), End: 8,
		MaxNew: 1}); err != nil {
		t.Fatal(err)
	}
	left, changes := []uint32{}, 0
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		left = append(left, v.Records[0].LeaseMSLeft)
		changes += len(v.Changed)
		return runAll(v, out)
	}
	once(t, s)
	enter(t, s, 2, 0, 4) // So that there is something to decide.
	s.SetLease(1, 300*time.Millisecond)
	for range 280 {
		once(t, s)
		if _, there := s.State(2); there {
			_, _ = s.Cancel(2)
		}
		enter(t, s, 2, 0, 4)
	}
	s.SetLease(1, 0)
	once(t, s)
	seen := slices.Compact(left)
	if !slices.Equal(seen, []uint32{0, 200, 100, 0}) {
		t.Errorf("left %v", seen)
	}
}

// TestReasonNamesItsPolicy: a reason stays with who gave it, whoever decides afterwards.
func TestReasonNamesItsPolicy(t *testing.T) {
	s, p := stage(t, Limits{})
	enter(t, s, 3, 0, 8, 8)
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 3, abi.ActionSkip, 0))
	}
	s.Commit(s.Plan(1, StepCosts{}), nil, 1)
	s.SetPolicy(policyFunc(nothingToDo))
	s.Commit(s.Plan(2, StepCosts{}), nil, 2)
	if info, _ := s.Info(3); info.Reason != 3 || info.Policy != "scripted" {
		t.Errorf("reason %d of %q", info.Reason, info.Policy)
	}
	if info, _ := s.Info(4); info.Reason != 0 || info.Policy != "" {
		t.Errorf("nobody gave a reason: %d of %q", info.Reason, info.Policy)
	}
}
