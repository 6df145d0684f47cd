package scheduler

import (
	"slices"

	"github.com/kvrelay/engine/abi"
)

// putStarvingFirst moves to the front what the policy has left out for too long: a running
// sequence for MaxIdleSteps steps, a waiting one for HardAge. After a standstill everybody who
// holds pages and still prefills comes first, and nobody is admitted until they are through:
// otherwise whoever gave way would take the pages again. Whoever was put first once is not
// preempted by a policy any more: it would starve if each time its pages went again.
func (s *Scheduler) putStarvingFirst() {
	starving := s.turn.list[:0]
	for _, q := range s.held {
		idle := s.limits.MaxIdleSteps > 0 && q.idle >= s.limits.MaxIdleSteps
		switch {
		case q.state == Decoding && idle:
			q.forcedAt, q.guarded = s.step, true
			s.note(q, moment{what: PutFirst})
			s.plan.Decision.Forced++
		case (q.state == Waiting || q.state == Prefilling) && (idle || s.stalled):
			starving = append(starving, q)
		}
	}
	s.stalled = s.stalled && len(starving) > 0
	s.turn.closed = s.stalled
	old := len(starving) + s.limits.MaxSeqs // No more can start, however many are old.
	for _, q := range s.queue {             // By arrival: the first that is young enough ends it.
		if s.limits.HardAge == 0 || s.now-q.arrival < s.limits.HardAge || len(starving) >= old {
			break
		}
		if q.remaining() > 0 {
			starving = append(starving, q)
		}
	}
	s.turn.list = starving
	if len(starving) == 0 {
		return
	}
	slices.SortFunc(starving, byArrival)
	s.plan.Decision.Forced += len(starving)
	order := s.turn.spare[:0]
	for _, q := range starving {
		q.forcedAt, q.guarded = s.step, true
		s.note(q, moment{what: PutFirst})
		tokens := auto
		if q.orderAt == s.step && s.turn.order[q.order].action == abi.ActionRun {
			tokens = s.turn.order[q.order].tokens
		}
		order = append(order, entry{q: q, tokens: tokens})
	}
	for _, e := range s.turn.order {
		if e.q.forcedAt != s.step || e.q.state == Decoding || e.action != abi.ActionRun {
			order = append(order, e)
		}
	}
	s.turn.order, s.turn.spare = order, s.turn.order
}
