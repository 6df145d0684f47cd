package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// read tells a story in words: what, how often, how much, why and on whose word.
func (s *Scheduler) read(id SequenceID) []string {
	moments, _, _ := s.Story(id)
	var out []string
	for _, m := range moments {
		line := fmt.Sprintf("%v x%d tokens=%d", m.What, m.Steps, m.Tokens)
		switch m.What {
		case Refused:
			line += " " + abi.RefusalName(uint64(m.Why))
		case Preempted:
			line += " " + abi.PreemptedName(m.Why)
		}
		if m.Reason != 0 {
			line += fmt.Sprintf(" reason=%d", m.Reason)
		}
		out = append(out, line+" by "+m.Policy)
	}
	return out
}

// TestStory follows a request that is passed over, refused, skipped, preempted and put first: each
// step of its wait has a cause, and the causes add up.
func TestStory(t *testing.T) {
	s, p := stage(t, Limits{MaxPreempt: 1, HardAge: 40 * time.Millisecond, MaxSeqs: 1})
	enter(t, s, 1, 0, 28)
	p.decide = runAll
	once(t, s)
	enter(t, s, 2, 0, 8)
	p.decide = nil // Nobody is named: the decode goes on, 2 is passed over.
	once(t, s)
	once(t, s)
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 2, abi.ActionRun, 8)) // One holds pages, one may.
	}
	for range 3 {
		once(t, s)
	}
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 2, abi.ActionSkip, 0))
	}
	once(t, s)
	p.decide = func(v *abi.View, out []abi.Decision) []abi.Decision {
		return append(out, act(v, 1, abi.ActionPreemptRecompute, 0), act(v, 2, abi.ActionRun, 8))
	}
	once(t, s)
	p.decide = nil
	for range 32 {
		once(t, s)
	}
	if err := s.Finish(2, ReasonStop); err != nil {
		t.Fatal(err)
	}
	once(t, s)
	want := []string{
		"queued x1 tokens=0 by scripted",
		"passed over x2 tokens=0 by scripted",
		"refused x3 tokens=0 max_seqs reason=2 by scripted",
		"skipped x1 tokens=0 reason=2 by scripted",
		"admitted x1 tokens=0 by scripted",
		"computed x1 tokens=8 by scripted",
		"first token x1 tokens=0 by scripted",
		"ended x1 tokens=0 by scripted",
	}
	if got := s.read(2); !slices.Equal(got, want) {
		t.Errorf("story\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{
		"queued x1 tokens=0 by others",
		"admitted x1 tokens=0 by scripted",
		"computed x1 tokens=28 by scripted",
		"first token x1 tokens=0 by scripted",
		"preempted x1 tokens=34 policy by scripted",
		"passed over x32 tokens=0 by scripted",
		"put first x1 tokens=0 by scripted",
		"admitted x1 tokens=0 by scripted", // The other one has taken its pages.
		"computed x1 tokens=35 by scripted",
	}
	if got := s.read(1); !slices.Equal(got, want) {
		t.Errorf("story\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestStoriesAreBounded: one story, all of the past, and the names of those who decided.
func TestStoriesAreBounded(t *testing.T) {
	s, p := stage(t, Limits{})
	enter(t, s, 1, 0, 4)
	p.decide = runAll
	once(t, s)
	q := s.byID[1]
	for i := range 200 {
		s.turnTo(q, moment{what: HeldBack, why: uint16(i)})
	}
	moments, lost, _ := s.Story(1)
	if len(moments) != maxMoments || moments[0].What != Queued || lost+len(moments) != 204 ||
		moments[len(moments)-1].Why != 199 ||
		moments[keptMoments].Why != 200-maxMoments+keptMoments {
		t.Errorf("%d moments, %d lost: %+v", len(moments), lost, moments)
	}
	for id := SequenceID(100); id < 100+2*maxPast; id++ {
		enter(t, s, int(id), 0, 4)
		if _, err := s.Cancel(id); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[SequenceID]bool{100: false, 99 + maxPast: false, 100 + maxPast: true,
		99 + 2*maxPast: true, 1: true, 5: false} {
		if _, _, ok := s.Story(id); ok != want {
			t.Errorf("the story of %d is known: %t", id, ok)
		}
	}
	for i := range 2 * maxDeciders {
		s.decider(fmt.Sprint("policy", i))
	}
	if len(s.deciders) != maxDeciders || s.deciders[s.turn.decider] != "others" {
		t.Errorf("%d names, the last is %s", len(s.deciders), s.deciders[s.turn.decider])
	}
}

// TestStoriesAddUp: under any policy, the steps of a wait that policies were asked in are the sum
// of those that its story gives a cause for.
func TestStoriesAddUp(t *testing.T) {
	waits := 0
	for n := uint64(1); n <= 60; n++ {
		w := newWorld(n, map[string]int{})
		for range 60 {
			if err := w.act(); err != nil {
				t.Fatal(err)
			}
			if err := w.step(); err != nil {
				t.Fatal(err)
			}
			for _, q := range w.s.queue {
				causes := 0
				moments, _, _ := w.s.Story(q.id)
				for _, m := range moments[q.story.phase:] {
					if m.What == PassedOver {
						causes += m.Steps
					}
				}
				asked := int(w.s.asked - q.story.asked)
				if got := causes + int(min(q.story.noted, uint64(asked))); got != asked {
					t.Fatalf("seed %d: %d waits for %d steps, %d have a cause:\n%s", n, q.id, asked,
						got, strings.Join(w.s.read(q.id), "\n"))
				}
				waits += asked
			}
		}
	}
	if waits < 1000 {
		t.Errorf("only %d steps of waiting", waits)
	}
}
