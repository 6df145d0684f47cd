package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

// answers gives a fixed answer and keeps what it is told of it.
type answers struct {
	out     []abi.Decision
	err     error
	told    string
	decided int
}

func (a *answers) Decide(_ *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	a.decided++
	return append(out, a.out...), a.err
}

func (a *answers) ReportFault(class abi.FaultClass, detail string) {
	a.told = string(class) + ": " + detail
}

// judged has, in slots 0 to 2: a decoding request of ID 1, one of ID 2 with 20 tokens to prefill, and
// a prepared one of ID 3; slot 3 was used and is free.
func judged(t *testing.T) (*Scheduler, *answers) {
	t.Helper()
	limits := Limits{MaxSeqs: 4, TokenBudget: 32, MaxQueue: 8, MaxPreempt: 1}
	s, err := New(Options{
		PageSize: 4, Pages: 40, MaxModelLen: 100, PrefixPages: -1, Limits: limits,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range []Request{
		{Prompt: make([]int32, 5)}, {Kind: PrepareReceive, Prompt: make([]int32, 9), End: 8},
		{Prompt: make([]int32, 5)},
	} {
		r.ID, r.MaxNew = SequenceID(1+2*id), 10
		if err := s.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	p := s.Plan(1, StepCosts{})
	s.Commit(p, []int32{1, 2}, 1)
	if err := s.Finish(5, ReasonStop); err != nil {
		t.Fatal(err)
	}
	prompt := make([]int32, 20)
	for i := range prompt {
		prompt[i] = int32(100 + i)
	}
	if err := s.Submit(Request{ID: 1<<32 + 2, Prompt: prompt, MaxNew: 1, Arrival: 2}); err != nil {
		t.Fatal(err)
	}
	limits.TokenBudget = 16
	if err := s.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	a := &answers{}
	s.SetPolicy(a)
	return s, a
}

func TestJudge(t *testing.T) {
	const all = abi.TokensAuto
	decode := abi.Decision{Slot: 0, IDLow: 1, Tokens: 1}
	prefill := abi.Decision{Slot: 2, IDLow: 2, Tokens: 8}
	with := func(d abi.Decision, change func(*abi.Decision)) []abi.Decision {
		change(&d)
		return []abi.Decision{d}
	}
	for _, c := range []struct {
		name  string
		out   []abi.Decision
		err   error
		fault string // What the fault says; "" for a good answer.
		rows  int    // Prefill tokens of the step.
	}{
		{"nothing", nil, nil, "", 0},
		{"a chunk", []abi.Decision{prefill}, nil, "", 8},
		{"a chunk and a decode", []abi.Decision{prefill, decode}, nil, "", 8},
		{"all of it", with(prefill, func(d *abi.Decision) { d.Tokens = all }), nil, "", 15},
		{"over budget", with(prefill, func(d *abi.Decision) { d.Tokens = 20 }), nil, "", 15},
		{"skip a decode", with(decode, func(d *abi.Decision) { d.Action = abi.ActionSkip }), nil, "", 0},
		{"skip with tokens", with(prefill, func(d *abi.Decision) { d.Action = abi.ActionSkip }), nil, "", 0},
		{"decode, host decides", with(decode, func(d *abi.Decision) { d.Tokens = all }), nil, "", 0},
		{"nothing to compute", []abi.Decision{{Slot: 1, IDLow: 3, Tokens: all}}, nil, "", 0},

		{"an error", nil, errors.New("out of ideas"), "out of ideas", 15},
		{"too many", make([]abi.Decision, 6), nil, "6 decisions, at most 5", 15},
		{"no such slot", with(decode, func(d *abi.Decision) { d.Slot = 4 }), nil, "the table has 3 slots", 15},
		{"a slot far out", with(decode, func(d *abi.Decision) { d.Slot = 1 << 31 }), nil, "3 slots", 15},
		{"wrong id", with(decode, func(d *abi.Decision) { d.IDLow = 9 }), nil, "id_low is 9", 15},
		{"twice", []abi.Decision{prefill, prefill}, nil, "listed twice", 15},
		{"run and skip", append(with(decode, func(d *abi.Decision) { d.Action = abi.ActionSkip }), decode),
			nil, "listed twice", 15},
		{"reserved", with(decode, func(d *abi.Decision) { d.Reserved = 1 }), nil, "reserved is 1", 15},
		{"preempt", with(decode, func(d *abi.Decision) { d.Action = abi.ActionPreemptRecompute }), nil,
			"capability", 15},
		{"swap", with(decode, func(d *abi.Decision) { d.Action = abi.ActionPreemptSwap }), nil, "capability", 15},
		{"shed", with(prefill, func(d *abi.Decision) { d.Action = abi.ActionShed }), nil, "capability", 15},
		{"unknown action", with(prefill, func(d *abi.Decision) { d.Action = 77 }), nil, "unknown action 77", 15},
		{"run of 0", with(prefill, func(d *abi.Decision) { d.Tokens = 0 }), nil, "0 tokens, 20 are left", 15},
		{"more than is left", with(prefill, func(d *abi.Decision) { d.Tokens = 21 }), nil, "21 tokens, 20", 15},
		{"decode of 0", with(decode, func(d *abi.Decision) { d.Tokens = 0 }), nil, "must be 1", 15},
		{"decode of 2", with(decode, func(d *abi.Decision) { d.Tokens = 2 }), nil, "must be 1", 15},
		{"run of a prepared one", []abi.Decision{{Slot: 1, IDLow: 3, Tokens: 1}}, nil, "0 are left", 15},
		{"a good one and a bad one", append(with(prefill, func(d *abi.Decision) { d.Tokens = 2 }),
			abi.Decision{Slot: 0, IDLow: 1}), nil, "decision 1, slot 0", 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, a := judged(t)
			a.out, a.err = c.out, c.err
			p := s.Plan(2, StepCosts{})
			d := p.Decision
			if d.Fallback != (c.fault != "") {
				t.Fatalf("fallback %t: %v", d.Fallback, d.Err)
			}
			if d.Fallback && !strings.Contains(d.Err.Error(), c.fault) {
				t.Errorf("fault %q, want %q in it", d.Err, c.fault)
			}
			if told := a.told != ""; told != (c.fault != "" && c.err == nil) {
				t.Errorf("the policy was told %q", a.told)
			}
			if p.PrefillTokens != c.rows {
				t.Errorf("%d tokens prefilled, want %d", p.PrefillTokens, c.rows)
			}
			if skipped := c.name == "skip a decode"; (p.Decodes == 0) != skipped || a.decided != 1 {
				t.Errorf("%d decodes, asked %d times", p.Decodes, a.decided)
			}
			s.Commit(p, make([]int32, len(p.Samples)), 2)
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFallbackIsFCFS: the step of a faulty policy is, to the last row, the step that the built-in
// policy would have made.
func TestFallbackIsFCFS(t *testing.T) {
	seen := 0
	for n := uint64(1); n < 30; n++ {
		var plans [2]string
		for k, p := range []Policy{nil, &answers{err: errors.New("broken")}} {
			w := newWorld(n, map[string]int{})
			w.s.SetPolicy(p)
			for range 10 {
				if err := w.submit(); err != nil {
					t.Fatal(err)
				}
			}
			for range 20 {
				w.now++
				p := w.s.Plan(w.now, StepCosts{})
				for _, chunk := range p.Chunks {
					plans[k] += fmt.Sprint(chunk)
				}
				w.s.Commit(p, make([]int32, len(p.Samples)), w.now)
			}
		}
		if plans[0] != plans[1] {
			t.Fatalf("seed %d:\n%s\n%s", n, plans[0], plans[1])
		}
		seen += len(plans[0])
	}
	if seen == 0 {
		t.Error("nothing was planned")
	}
}
