package scheduler

import (
	"fmt"

	"github.com/kvrelay/engine/host/prefix"
)

// Finish ends a sequence: a decoding one that has its last token, or a delivered one that nobody
// starts. Its pages stay in the prefix cache, evictable. Policies hear the reason.
func (s *Scheduler) Finish(id SequenceID, reason Reason) error {
	q, err := s.find(id, Decoding, Receiving)
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	if q.state == Receiving && !q.delivered {
		return fmt.Errorf("finish: sequence %d is still being written: %w", id, ErrNotDelivered)
	}
	s.finished(q, reason)
	if q.pin && q.state == Receiving { // What was delivered of a prompt that shall stay, stays.
		q.prompt = q.computed
		s.pinNow(q)
	}
	s.end(q, prefix.Keep)
	return nil
}

// Cancel ends a sequence in any state. Pages that nobody else references are free at once, except:
// pages being sent stay pinned until SendReleased, pages being written go to quarantine until
// Release; held reports that one of the two is still to come.
func (s *Scheduler) Cancel(id SequenceID) (held bool, err error) {
	q, err := s.find(id)
	if err != nil {
		return false, fmt.Errorf("cancel: %w", err)
	}
	if q.state == Finished {
		q.discard = true
		return true, nil
	}
	s.finished(q, ReasonCancelled)
	switch {
	case q.state == Receiving && !q.delivered:
		s.isolate(q)
		s.end(q, prefix.Keep)
		return true, nil
	}
	s.end(q, prefix.Drop)
	_, held = s.byID[id]
	return held, nil
}

// end finishes a sequence and gives its pages back, at once or, if they are being sent, later.
func (s *Scheduler) end(q *sequence, fate prefix.Fate) {
	if q.sending {
		q.discard = fate == prefix.Drop
		s.leave(q)
		return
	}
	s.unpromise(q)
	if q.holds {
		s.giveBack(q, fate)
		s.unhold(q)
	} else {
		s.dequeue(q)
	}
	s.move(q, Finished)
	s.forget(q)
}

// leave finishes a sequence whose pages are still being sent.
func (s *Scheduler) leave(q *sequence) {
	s.unpromise(q)
	s.unhold(q)
	s.move(q, Finished)
	s.leaving = append(s.leaving, q)
}
