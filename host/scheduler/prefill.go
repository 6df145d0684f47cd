package scheduler

import "github.com/kvrelay/engine/abi"

// prefill computes prompt chunks, local ones and those of remote sends alike, in the policy's order
// and out of what the decodes left of the budget. What does not fit is passed over.
func (s *Scheduler) prefill() {
	charged := 0
	s.walk()
	for i := range s.turn.order {
		e := s.turn.order[i]
		q := e.q
		if s.turn.ended || s.turn.budget == 0 {
			s.cut(i)
			return
		}
		if s.passed(&e) {
			continue
		}
		if q.kind == PrepareReceive {
			charged++
		}
		if q.kind == PrepareReceive || q.state != Waiting && q.state != Prefilling ||
			q.preemptAt == s.step {
			continue
		}
		s.run(e)
	}
	if charged+s.plan.Decision.Refused > 0 || s.turn.fill {
		s.fillBudget()
	}
}

// cut ends the list: there are no tokens left for the entries from i on.
func (s *Scheduler) cut(i int) {
	for _, e := range s.turn.order[i:] {
		if q := e.q; e.action == abi.ActionRun && q.plannedAt != s.step && q.remaining() > 0 &&
			(q.state == Waiting || q.state == Prefilling) && q.refusedAt != s.step {
			s.refuse(q, abi.RefusalBudget)
		}
	}
}

// run computes a chunk of a sequence, admitting it where it waits, if budget and pages allow.
func (s *Scheduler) run(e entry) bool {
	q := e.q
	tokens, ok := 0, false
	if q.holds {
		tokens, ok = s.proceed(e)
	} else if tokens, ok = s.admit(e); ok {
		s.dequeue(q)
		s.hold(q)
	}
	if !ok {
		return false
	}
	if q.state == Waiting {
		s.move(q, Prefilling)
	}
	if tokens < e.tokens && tokens < q.target()-q.computed {
		s.trimmed(q, e.tokens, tokens)
	}
	s.compute(q, tokens, false)
	return true
}

// chunk is how many tokens of an entry from a position on this step computes; 0: none.
func (s *Scheduler) chunk(e entry, from int) int {
	remaining := e.q.target() - from
	if e.q.kind == PrepareReceive {
		return remaining // Nothing is computed, so no budget bounds it.
	}
	align := s.unit(e.q)
	want := e.tokens
	if want == auto {
		want = remaining
	}
	n := min(want, remaining, s.chunkMax(align))
	if n < remaining {
		n = min(max(n-n%align, align), remaining)
	}
	if n > s.turn.budget {
		n = s.turn.budget
		n -= n % align
		s.turn.ended = true
	}
	if cut := s.fit(e.q, from, n); cut != n {
		s.turn.ended = false
		return cut
	}
	return n
}

// proceed reserves pages for the next chunk of a sequence that has some.
func (s *Scheduler) proceed(e entry) (tokens int, ok bool) {
	q := e.q
	tokens = s.chunk(e, q.computed)
	if tokens == 0 {
		s.refuseBarred(q)
		return 0, false
	}
	need := s.pagesFor(q.computed+tokens) - q.pages()
	if need <= 0 {
		return tokens, true
	}
	if !s.room(need, false) {
		s.refuse(q, abi.RefusalPages)
		s.turn.short, s.turn.ended = true, false
		s.turn.closed = s.turn.closed || q.forcedAt == s.step
		return 0, false
	}
	s.reserve(need + s.spare(false))
	s.take(q, need)
	return tokens, true
}

// admit gives a queued sequence its first pages: what the prefix cache holds is shared, its tail
// page copied or taken over, the rest of the chunk gets new pages. Nothing is taken where that
// fails.
func (s *Scheduler) admit(e entry) (tokens int, ok bool) {
	q := e.q
	if why := s.shut(q); why != 0 {
		s.refuse(q, why)
		s.turn.quota = s.turn.quota || why == abi.RefusalTenant
		return 0, false
	}
	matched := s.match(q, q.target())
	for {
		tokens = s.chunk(e, matched)
		if tokens > 0 && s.roomFor(q, tokens) {
			s.settle(q)
			s.countAdmission(q)
			return tokens, true
		}
		if tokens == 0 || !s.copies() {
			break
		}
		// The tail's page, kept for the copy, may be the one that is missing.
		s.undo()
		matched = s.match(q, matched-matched%s.options.PageSize+1)
	}
	s.undo()
	s.refuseBarred(q)
	if tokens > 0 { // Pages were missing, not budget.
		s.refuse(q, abi.RefusalPages)
		s.turn.ended = false
		s.turn.closed = s.turn.closed || q.forcedAt == s.step
	}
	return 0, false
}

// shut says why nobody, or not this sequence, is admitted whatever pages there are; 0: it may be.
func (s *Scheduler) shut(q *sequence) uint64 {
	switch {
	case s.turn.closed:
		return abi.RefusalClosed
	case len(s.held) >= s.limits.MaxSeqs:
		return abi.RefusalMaxSeqs
	case s.turn.admitted >= s.limits.MaxAdmit:
		return abi.RefusalMaxAdmit
	case s.tenantFull(q):
		return abi.RefusalTenant
	}
	return 0
}

// room is the one predicate that lets a sequence go on that has pages: those it needs, and those to
// spare, must be free or evictable in each model. roomFor is the same for one that has none.
func (s *Scheduler) room(need int, admission bool) bool {
	return need+s.spare(admission) <= s.Available()-s.turn.owed
}

// spare is how many pages a chunk must leave free: one for each sequence that holds pages, this one
// included. Admissions leave the reserve free as well, unless nobody else could ever free it.
func (s *Scheduler) spare(admission bool) int {
	spare := len(s.held)
	if admission {
		spare++
		if len(s.held) > 0 {
			spare += s.limits.ReservePages
		}
	}
	return spare
}

// countAdmission counts a sequence that got its first pages, or got some again.
func (s *Scheduler) countAdmission(q *sequence) {
	if q.preempted == 0 {
		q.cached = q.matched
	}
	s.turn.admitted++
	s.admitted(q)
	s.matched += uint64(q.matched)
	s.queried += uint64(q.target())
}
