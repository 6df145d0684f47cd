package scheduler

import (
	"fmt"

	"github.com/kvrelay/engine/host/prefix"
)

// remoteSend notes which positions of a chunk belong to the window. Its logits are not needed. From
// now on somebody may be reading the sequence's pages: it is not preempted, its table does not
// change, and its pages stay until SendReleased, unless they slide out of the window.
func (s *Scheduler) remoteSend(q *sequence, start, end int) {
	send := Send{
		ID: q.id, FreshStart: max(start, q.begin), FreshEnd: max(end, q.begin),
		Pages: q.tables[0].pages[:s.pagesFor(end)], Last: end == q.end,
	}
	if !q.announced && q.begin < start {
		send.CachedStart, send.CachedEnd = q.begin, start
	}
	for i := range s.models[1:] {
		send.Drafts = append(send.Drafts, q.tables[1+i].pages[:s.pagesFor(end)])
	}
	q.sending = true
	tokens := send.CachedEnd - send.CachedStart + send.FreshEnd - send.FreshStart
	s.note(q, moment{what: Going, tokens: uint32(tokens), last: uint32(tokens)})
	s.plan.Sends = append(s.plan.Sends, send)
}

// SendReleased says that the receiver acknowledged a remote send or was fenced: nobody reads the
// pages of this finished sequence any more.
func (s *Scheduler) SendReleased(id SequenceID) error {
	q, err := s.find(id, Finished)
	if err != nil {
		return fmt.Errorf("release send: %w", err)
	}
	for i, other := range s.leaving {
		if other == q {
			s.leaving = append(s.leaving[:i], s.leaving[i+1:]...)
			break
		}
	}
	fate := prefix.Keep
	if q.discard {
		fate = prefix.Drop
	} else {
		s.publish(q, true)
	}
	s.giveBack(q, fate)
	s.forget(q)
	return nil
}
