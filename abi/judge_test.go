package abi

import (
	"strings"
	"testing"
)

// TestJudge: each hard rule has an answer that breaks it and one that just keeps it.
func TestJudge(t *testing.T) {
	waiting := Record{ID: 1<<32 | 7, State: StateLive, RemainingPrefill: 9}
	running := Record{ID: 8, State: StateLive | StateRunning | StateDecoding}
	pinned := Record{ID: 9, State: StateLive | StateRunning | StatePinned, RemainingPrefill: 1}
	v := View{
		Header:  Header{NSlots: 4, DecisionsCap: 3},
		Records: []Record{waiting, running, {}, pinned},
	}
	all := ^uint64(0)
	for _, c := range []struct {
		granted uint64
		d       Decision
		want    string // "" keeps the rules.
	}{
		{0, Decision{Slot: 0, IDLow: 7, Tokens: 9}, ""},
		{0, Decision{Slot: 0, IDLow: 7, Tokens: TokensAuto}, ""},
		{0, Decision{Slot: 0, IDLow: 7, Tokens: 10}, "10 tokens, 9 are left"},
		{0, Decision{Slot: 0, IDLow: 7}, "0 tokens"},
		{0, Decision{Slot: 1, IDLow: 8, Tokens: 1}, ""},
		{0, Decision{Slot: 1, IDLow: 8, Tokens: 2}, "must be 1"},
		{0, Decision{Slot: 1, IDLow: 7, Tokens: 1}, "id_low is 7"},
		{0, Decision{Slot: 2}, "free"},
		{0, Decision{Slot: 4}, "4 slots"},
		{0, Decision{Slot: 1, IDLow: 8, Tokens: 1, Reserved: 1}, "reserved"},
		{0, Decision{Slot: 1, IDLow: 8, Action: ActionSkip, Tokens: 99}, ""},
		{0, Decision{Slot: 1, IDLow: 8, Action: 5}, "unknown action 5"},
		{all &^ CapPreempt, Decision{Slot: 1, IDLow: 8, Action: ActionPreemptRecompute},
			"needs capability 1 (preempt)"},
		{CapPreempt, Decision{Slot: 1, IDLow: 8, Action: ActionPreemptRecompute}, ""},
		{CapPreempt, Decision{Slot: 0, IDLow: 7, Action: ActionPreemptRecompute}, "no pages"},
		{CapPreempt, Decision{Slot: 3, IDLow: 9, Action: ActionPreemptRecompute}, "pinned"},
		{all &^ CapSwap, Decision{Slot: 1, IDLow: 8, Action: ActionPreemptSwap}, "2 (swap)"},
		{all &^ CapShed, Decision{Slot: 0, IDLow: 7, Action: ActionShed}, "3 (shed)"},
		{CapShed, Decision{Slot: 0, IDLow: 7, Action: ActionShed}, ""},
	} {
		err := new(Judge).Check(&v, []Decision{c.d}, c.granted)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.d, err, c.want)
		}
	}
	var j Judge
	twice := []Decision{{Slot: 0, IDLow: 7, Tokens: 1}, {Slot: 0, IDLow: 7, Tokens: 1}}
	for range 2 { // The second answer is not held against the first.
		if err := j.Check(&v, twice, 0); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("listed twice: %v", err)
		}
		if err := j.Check(&v, twice[:1], 0); err != nil {
			t.Error(err)
		}
	}
	if err := j.Check(&v, make([]Decision, 4), 0); err == nil {
		t.Error("more than decisions_cap")
	}
	if n := testing.AllocsPerRun(100, func() { _ = j.Check(&v, twice[:1], 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
