package scheduler

import (
	"slices"

	"github.com/kvrelay/engine/abi"
)

// decode gives each running sequence its next token, before anybody else gets of the budget. Where
// the budget is smaller than their number they take turns; where pages run out the last admitted
// give way.
func (s *Scheduler) decode() {
	list := s.turn.list[:0]
	for _, q := range s.held {
		if q.state != Decoding {
			continue
		}
		if q.skipAt == s.step && q.forcedAt != s.step {
			s.plan.Decision.Skipped++
			continue
		}
		if q.orderAt != s.step {
			q.order = len(s.turn.order)
		}
		list = append(list, q)
	}
	slices.SortStableFunc(list, s.byTurn)
	s.turn.list = list
	for _, q := range list {
		if s.turn.budget <= s.turn.kept {
			return
		}
		if q.state == Decoding && s.makeRoom(q) {
			s.compute(q, 1, true)
		}
	}
}

// byTurn orders decodes: starving ones, then those the policy listed, in its order, then whoever
// has waited longest for its turn.
func (s *Scheduler) byTurn(a, b *sequence) int {
	forcedA, forcedB := a.forcedAt == s.step, b.forcedAt == s.step
	switch {
	case forcedA != forcedB && forcedA:
		return -1
	case forcedA != forcedB:
		return 1
	case a.order != b.order:
		return compare(a.order, b.order)
	}
	return compare(a.plannedAt, b.plannedAt)
}

// makeRoom sees to it that the next token of a running sequence has a slot. It preempts the last
// admitted sequences until that is so, in the end this one; then it reports false.
func (s *Scheduler) makeRoom(q *sequence) bool {
	if q.computed < q.pages()*s.options.PageSize {
		return true
	}
	for !s.reserve(1) {
		victim := s.victim(q)
		s.preempt(victim, abi.PreemptedMemory)
		if victim == q {
			return false
		}
	}
	s.take(q, 1)
	return true
}

// victim is the last admitted sequence whose pages may be taken and that this step does not
// compute; at the latest it is q itself.
func (s *Scheduler) victim(q *sequence) *sequence {
	for i := len(s.held) - 1; i >= 0; i-- {
		v := s.held[i]
		if v == q || v.preemptable() && v.plannedAt != s.step && v.pages() > 0 {
			return v
		}
	}
	return q
}
