package scheduler

import (
	"fmt"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/prefix"
)

// prepareReceive reserves pages for announced prompts: all of [0, End) at once, since nothing is
// computed and no budget is used, and as many prompts as fit. A reservation of nothing asks no
// policy.
func (s *Scheduler) prepareReceive() {
	for i := 0; i < len(s.queue) && s.hollow > 0; {
		q := s.queue[i]
		if q.kind == PrepareReceive && q.end == 0 && !q.doomed &&
			len(s.held) < s.limits.MaxSeqs && !s.tenantFull(q) {
			s.prepare(q)
			continue
		}
		i++
	}
	s.walk()
	for i := range s.turn.order {
		e := &s.turn.order[i]
		if s.passed(e) || e.q.kind != PrepareReceive || e.q.state != Waiting {
			continue
		}
		if _, ok := s.admit(*e); ok {
			s.prepare(e.q)
		}
	}
}

// prepare grants the reservation of a sequence that has its pages.
func (s *Scheduler) prepare(q *sequence) {
	s.dequeue(q)
	s.hold(q)
	s.move(q, Prepared)
	s.note(q, moment{what: Reserved, tokens: uint32(q.end)})
	g := Grant{ID: q.id, Matched: q.matched, End: q.end}
	for i, m := range s.models {
		t := &q.tables[i]
		segments := kvcache.AppendSegments(
			nil, m.written(q, t), s.options.PageSize, q.matched, q.end)
		if i == 0 {
			g.Pages, g.Segments = t.pages, segments
			continue
		}
		g.Drafts, g.DraftPages = append(g.Drafts, segments), append(g.DraftPages, t.pages)
	}
	s.plan.Grants = append(s.plan.Grants, g)
}

// Receiving says that a writer opened the reservation: prepared → receiving.
func (s *Scheduler) Receiving(id SequenceID) error {
	q, err := s.find(id, Prepared)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	s.move(q, Receiving)
	s.note(q, moment{what: Written})
	return nil
}

// Delivered says that all KV before end is here and that the writer has gone. Only now do these
// tokens enter the prefix cache. end may be short of what was prepared; with a window that may be
// worth no more than what was matched, since what the end does not see was not sent.
func (s *Scheduler) Delivered(id SequenceID, end int) error {
	q, err := s.find(id, Prepared, Receiving)
	if err != nil {
		return fmt.Errorf("delivered: %w", err)
	}
	if q.delivered || end < q.matched || end > q.end {
		return fmt.Errorf("delivered: sequence %d up to %d, prepared for [%d, %d), "+
			"delivered already: %t: %w",
			id, end, q.matched, q.end, q.delivered, ErrWindow)
	}
	if q.state == Prepared {
		s.move(q, Receiving)
	}
	q.delivered = true
	s.turnTo(q, moment{what: Arrived, tokens: uint32(end)})
	end = q.whole(end)
	q.computed = s.received(q, end)
	if end < q.end {
		s.truncate(q)
	}
	s.slide(q)
	s.publish(q, true)
	s.touch(q)
	return nil
}

// StartGenerate lets a prepared or received sequence go on by itself: → waiting, for its rest.
// begin past what is here is ErrNotDelivered, as is a writer that has not delivered; begin short
// of what was prepared leaves the gap to be computed here.
func (s *Scheduler) StartGenerate(id SequenceID, begin int) error {
	q, err := s.find(id, Prepared, Receiving)
	if err != nil {
		return fmt.Errorf("start generate: %w", err)
	}
	switch {
	case begin < 0 || begin >= q.prompt:
		return fmt.Errorf("start generate: sequence %d at %d of %d prompt tokens: %w",
			id, begin, q.prompt, ErrWindow)
	case q.state == Receiving && !q.delivered:
		return fmt.Errorf("start generate: sequence %d is still being written: %w",
			id, ErrNotDelivered)
	case begin > q.computed:
		return fmt.Errorf("start generate: sequence %d at %d, the KV here ends at %d: %w",
			id, begin, q.computed, ErrNotDelivered)
	}
	s.start(q)
	return nil
}

// start makes a local sequence of a reservation.
func (s *Scheduler) start(q *sequence) {
	q.kind = Local
	s.truncate(q)
	if q.holds {
		s.queued(q)
	}
	s.move(q, Waiting)
}

// Recompute gives up what a failed transfer was to bring: the sequence waits as a local request and
// computes everything itself. With a live writer its reserved pages go to quarantine until Release;
// held reports that.
func (s *Scheduler) Recompute(id SequenceID) (held bool, err error) {
	q, err := s.find(id, Prepared, Receiving)
	if err != nil {
		return false, fmt.Errorf("recompute: %w", err)
	}
	if q.delivered {
		s.start(q)
		return false, nil
	}
	s.turnTo(q, moment{what: Recomputed})
	if q.state == Receiving {
		s.isolate(q)
		held = true
	}
	s.giveBack(q, prefix.Keep)
	s.unhold(q)
	s.start(q)
	s.enqueue(q)
	return held, nil
}

// Quarantine ends a reservation whose writer may still be live: its pages belong to nobody until
// Release.
func (s *Scheduler) Quarantine(id SequenceID) error {
	q, err := s.find(id, Prepared, Receiving)
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if q.delivered {
		return fmt.Errorf("quarantine: sequence %d was delivered, its writer has gone: %w",
			id, ErrState)
	}
	s.finished(q, ReasonError)
	s.isolate(q)
	s.end(q, prefix.Keep)
	return nil
}

// Release says that the writer of a quarantined reservation is fenced: its pages are free.
func (s *Scheduler) Release(id SequenceID) error {
	if s.models[0].quarantine[id] == nil {
		return fmt.Errorf("release: sequence %d has nothing in quarantine: %w", id, ErrUnknown)
	}
	for _, m := range s.models {
		for _, page := range m.quarantine[id] {
			m.pool.Fence(page)
		}
		delete(m.quarantine, id)
	}
	return nil
}
