package scheduler

import (
	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/prefix"
)

// preemptAndShed carries out what the policy wants taken away, in its order and before anything is
// computed: decodes may need the pages too.
func (s *Scheduler) preemptAndShed() {
	for i := range s.turn.order {
		switch e := &s.turn.order[i]; e.action {
		case abi.ActionPreemptRecompute:
			s.preemptOrdered(e)
		case abi.ActionShed:
			s.shed(e.q)
		}
	}
}

// preemptOrdered takes the pages of a sequence that the policy names, and notes what that freed.
func (s *Scheduler) preemptOrdered(e *entry) {
	switch q := e.q; {
	case !q.holds || !q.preemptable():
		s.refuse(q, abi.RefusalIdle)
	case q.guarded:
		s.refuse(q, abi.RefusalGuarded)
	case s.turn.preempted >= s.limits.MaxPreempt:
		s.refuse(q, abi.RefusalMaxPreempt)
	default:
		before := s.Available()
		s.preempt(q, abi.PreemptedPolicy)
		s.turn.preempted++
		s.plan.Decision.Preempted++
		e.freed = max(s.Available()-before, 0)
	}
}

// shed ends a request of which nothing has reached anybody.
func (s *Scheduler) shed(q *sequence) {
	if q.generated() > 0 || q.sending || q.holds && !q.preemptable() {
		s.refuse(q, abi.RefusalBegun)
		return
	}
	s.plan.Decision.Shed++
	s.plan.Shed = append(s.plan.Shed, Shed{ID: q.id, Reason: q.reason})
	s.turnTo(q, moment{what: WasShed, reason: q.reason})
	s.finished(q, ReasonError)
	s.end(q, prefix.Keep)
}

// walk sets the pages that the list owes to what stands behind its preemptions; passed takes off
// what one of them freed.
func (s *Scheduler) walk() {
	s.turn.owed = 0
	for i := range s.turn.order {
		s.turn.owed += s.turn.order[i].freed
	}
}

// passed reports whether an entry runs something, and otherwise makes what it freed available.
func (s *Scheduler) passed(e *entry) bool {
	s.turn.owed -= e.freed
	return e.action != abi.ActionRun
}

// preempt takes a sequence's pages; why is one of the abi.Preempted codes. It waits again, with
// what it has generated, and computes prompt and output anew, so that nothing is made twice. Its
// pages stay matchable, first in line for eviction.
func (s *Scheduler) preempt(q *sequence, why uint16) {
	lost := q.computed
	s.displaced(q, moment{what: Preempted, why: why, tokens: uint32(lost)})
	s.giveBack(q, prefix.Demote)
	s.unhold(q)
	if q.state != Waiting {
		s.move(q, Waiting)
	}
	s.enqueue(q)
	q.hint = s.peek(q)
	q.preempted++
	q.preemptAt = s.step
	s.preempted++
	s.turn.closed = s.turn.closed || why != abi.PreemptedPolicy
	s.plan.Preempted = append(s.plan.Preempted, q.id)
	s.happened(abi.EventPreempted, q, abi.Event{Reason: why, Tokens: uint32(lost)})
}

// breakStall ends the one standstill that nothing outside would end: several sequences hold pages,
// each needs more, none gets any. The last admitted gives way; a remote send, whose pages somebody
// is reading, cannot wait again and fails.
func (s *Scheduler) breakStall() {
	if !s.turn.short || !s.plan.Empty() || len(s.plan.Grants) > 0 {
		return
	}
	blocked, outside := 0, len(s.leaving) > 0
	var local, remote *sequence
	for _, q := range s.held {
		switch {
		case q.state != Waiting && q.state != Prefilling:
			outside = outside || q.state != Decoding
		case q.kind == RemoteSend:
			blocked++
			remote = q
		default:
			blocked++
			local = q
		}
	}
	s.stalled = s.stalled || blocked >= 2
	switch {
	case blocked < 2:
	case local != nil:
		s.preempt(local, abi.PreemptedStandstill)
	case !outside:
		s.plan.Failed = append(s.plan.Failed, remote.id)
		s.finished(remote, ReasonError)
		s.end(remote, prefix.Drop)
	}
}
