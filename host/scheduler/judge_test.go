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

// judged has, in slots 0 to 2: a decoding request of ID 1, one of ID 2 with 20 tokens to prefill,
// and a prepared one of ID 3; slot 3 was used and is free.
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

// judgeCase is an answer to what judged shows.
type judgeCase struct {
	name  string
	out   []abi.Decision
	err   error
	fault string // What the fault says; "" for a good answer.
	rows  int    // Prefill tokens of the step; a fallback takes all there is.
}

func judgeCases() []judgeCase {
	const all = abi.TokensAuto
	one := func(d ...abi.Decision) []abi.Decision { return d }
	decode := func(action uint8, tokens uint32) abi.Decision {
		return abi.Decision{Slot: 0, IDLow: 1, Action: action, Tokens: tokens}
	}
	prefill := func(action uint8, tokens uint32) abi.Decision {
		return abi.Decision{Slot: 2, IDLow: 2, Action: action, Tokens: tokens}
	}
	const run, skip = abi.ActionRun, abi.ActionSkip
	return []judgeCase{
		{"nothing", nil, nil, "", 0},
		{"a chunk", one(prefill(run, 8)), nil, "", 8},
		{"a chunk and a decode", one(prefill(run, 8), decode(run, 1)), nil, "", 8},
		{"all of it", one(prefill(run, all)), nil, "", 15},
		{"over budget", one(prefill(run, 20)), nil, "", 15},
		{"skip a decode", one(decode(skip, 0)), nil, "", 0},
		{"skip with tokens", one(prefill(skip, 8)), nil, "", 0},
		{"decode, host decides", one(decode(run, all)), nil, "", 0},
		{"nothing to compute", one(abi.Decision{Slot: 1, IDLow: 3, Tokens: all}), nil, "", 0},

		{"an error", nil, errors.New("out of ideas"), "out of ideas", 15},
		{"too many", make([]abi.Decision, 6), nil, "6 decisions, at most 5", 15},
		{"no such slot", one(abi.Decision{Slot: 3, IDLow: 1}), nil, "the table has 3 slots", 15},
		{"a slot far out", one(abi.Decision{Slot: 1 << 31}), nil, "3 slots", 15},
		{"wrong id", one(abi.Decision{IDLow: 9, Tokens: 1}), nil, "id_low is 9", 15},
		{"twice", one(prefill(run, 8), prefill(run, 8)), nil, "listed twice", 15},
		{"run and skip", one(decode(run, 1), decode(skip, 0)), nil, "listed twice", 15},
		{"reserved", one(abi.Decision{IDLow: 1, Tokens: 1, Reserved: 1}), nil, "reserved is 1", 15},
		{"preempt", one(decode(abi.ActionPreemptRecompute, 0)), nil, "capability", 15},
		{"swap", one(decode(abi.ActionPreemptSwap, 0)), nil, "capability", 15},
		{"shed", one(prefill(abi.ActionShed, 0)), nil, "capability", 15},
		{"unknown action", one(prefill(77, 1)), nil, "unknown action 77", 15},
		{"run of 0", one(prefill(run, 0)), nil, "0 tokens, 20 are left", 15},
		{"more than is left", one(prefill(run, 21)), nil, "21 tokens, 20", 15},
		{"decode of 0", one(decode(run, 0)), nil, "must be 1", 15},
		{"decode of 2", one(decode(run, 2)), nil, "must be 1", 15},
		{"a prepared one", one(abi.Decision{Slot: 1, IDLow: 3, Tokens: 1}), nil, "0 are left", 15},
		{"good and bad", one(prefill(run, 2), decode(run, 0)), nil, "decision 1, slot 0", 15},
	}
}

func TestJudge(t *testing.T) {
	for _, c := range judgeCases() {
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

// FuzzJudge: whatever bytes a guest leaves as its decisions, the step is served within its limits
// and nothing is lost.
func FuzzJudge(f *testing.F) {
	for _, c := range judgeCases() {
		var seed []byte
		for _, d := range c.out {
			var one [abi.DecisionSize]byte
			d.Encode(one[:])
			seed = append(seed, one[:]...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, a := judged(t)
		for ; len(data) >= abi.DecisionSize && len(a.out) < 16; data = data[abi.DecisionSize:] {
			var d abi.Decision
			if err := d.Decode(data); err != nil {
				t.Fatal(err)
			}
			a.out = append(a.out, d)
		}
		p := s.Plan(2, StepCosts{})
		if rows := p.Batch.Rows(); rows > 16 || p.Decision.Fallback != (p.Decision.Err != nil) {
			t.Errorf("%d rows, %+v", rows, p.Decision)
		}
		s.Commit(p, make([]int32, len(p.Samples)), 2)
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}
