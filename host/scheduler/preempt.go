package scheduler

import "github.com/kvrelay/engine/host/prefix"

// preempt takes a sequence's pages. It waits again, with what it has generated, and computes prompt
// and output anew, so that nothing is made twice. Its pages stay matchable, first in line for
// eviction.
func (s *Scheduler) preempt(q *sequence) {
	s.giveBack(q, prefix.Demote)
	s.unhold(q)
	if q.state != Waiting {
		s.move(q, Waiting)
	}
	s.enqueue(q)
	q.hint = s.cache.Peek(q.tokens[:q.target()])
	q.preempted++
	q.preemptAt = s.step
	s.preempted++
	s.turn.closed = true
	s.plan.Preempted = append(s.plan.Preempted, q.id)
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
		s.preempt(local)
	case !outside:
		s.plan.Failed = append(s.plan.Failed, remote.id)
		s.end(remote, prefix.Drop)
	}
}
