package scheduler

import "slices"

// fillTries is how many of the queue may turn out not to fit before filling gives up: where pages
// are short, it would look at all of the queue in every step.
const fillTries = 16

// fillBudget gives the budget that the policy left, or meant for entries that could not run or that
// cost none, to sequences that hold pages: they were admitted, and nobody else profits from their
// wait. Without it a request that cannot be admitted would keep those before it from making room.
// Where the policy wants its budget filled, or its entries met no bound but their tenants', the
// queue gets of it too. All first come, first served.
func (s *Scheduler) fillBudget() {
	running := s.turn.list[:0]
	for _, q := range s.held {
		if (q.state == Waiting || q.state == Prefilling) && s.leftAside(q) {
			running = append(running, q)
		}
	}
	slices.SortFunc(running, byArrival)
	s.turn.list = running
	next, tries := 0, 0
	for (s.turn.fill || s.turn.quota) && tries < fillTries {
		for next < len(s.queue) && !s.admissible(s.queue[next]) {
			next++
		}
		if next == len(s.queue) || s.turn.ended || s.turn.budget == 0 || s.turn.closed ||
			len(s.held) >= s.limits.MaxSeqs || s.turn.admitted >= s.limits.MaxAdmit {
			break
		}
		q := s.queue[next]
		for len(running) > 0 && byArrival(running[0], q) < 0 {
			s.fillWith(running[0])
			running = running[1:]
		}
		if !s.fillWith(q) {
			next++
			tries++
		}
	}
	for _, q := range running {
		s.fillWith(q)
	}
}

// leftAside reports whether this step could compute a sequence that the policy named nowhere, or
// whose entry could not run.
func (s *Scheduler) leftAside(q *sequence) bool {
	return q.plannedAt != s.step && q.skipAt != s.step && q.preemptAt != s.step &&
		q.remaining() > 0
}

// admissible is leftAside for the queue: of what was refused already, once is enough.
func (s *Scheduler) admissible(q *sequence) bool {
	return q.kind != PrepareReceive && q.refusedAt != s.step && s.leftAside(q) && !s.tenantFull(q)
}

// fillWith computes a chunk of a sequence if budget and pages allow.
func (s *Scheduler) fillWith(q *sequence) bool {
	if s.turn.ended || s.turn.budget == 0 {
		return false
	}
	return s.run(entry{q: q, tokens: auto})
}
