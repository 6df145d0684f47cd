package scheduler

import "slices"

// putStarvingFirst moves to the front what the policy has left out for too long: a running sequence
// for MaxIdleSteps steps, a waiting one for HardAge.
func (s *Scheduler) putStarvingFirst() {
	starving := s.turn.list[:0]
	for _, q := range s.held {
		if s.limits.MaxIdleSteps == 0 || q.idle < s.limits.MaxIdleSteps {
			continue
		}
		switch q.state {
		case Decoding:
			q.forcedAt = s.step
			s.plan.Decision.Forced++
		case Waiting, Prefilling:
			starving = append(starving, q)
		}
	}
	for _, q := range s.queue { // By arrival: the first that is young enough ends it.
		if s.limits.HardAge == 0 || s.now-q.arrival < s.limits.HardAge {
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
		q.forcedAt = s.step
		tokens := auto
		if q.orderAt == s.step {
			tokens = s.turn.order[q.order].tokens
		}
		order = append(order, entry{q: q, tokens: tokens})
	}
	for _, e := range s.turn.order {
		if e.q.forcedAt != s.step || e.q.state == Decoding {
			order = append(order, e)
		}
	}
	s.turn.order, s.turn.spare = order, s.turn.order
}
