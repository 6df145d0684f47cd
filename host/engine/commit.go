package engine

import (
	"context"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// Commit implements generation.Reservations.
func (e *Engine) Commit(ctx context.Context, id string) (tokens int, err error) {
	type answer struct {
		tokens int
		err    error
	}
	answers := make(chan answer, 1)
	_, err = call(ctx, e, func() (struct{}, error) {
		return struct{}{}, e.beginCommit(id, func(tokens int, err error) {
			answers <- answer{tokens, err}
		})
	})
	if err != nil {
		return 0, err
	}
	select {
	case a := <-answers:
		return a.tokens, a.err
	case <-e.stopped:
		return 0, stopping()
	case <-ctx.Done(): // What is being written stays reserved, for whoever asks again.
		e.inbox.put(func() {
			if r := e.labels[id]; r != nil {
				r.reservation.commit = nil
			}
		})
		return 0, cancelled()
	}
}

// beginCommit ends a reservation whose keys and values are here, or as soon as they are.
func (e *Engine) beginCommit(id string, reply func(int, error)) error {
	r := e.labels[id]
	switch {
	case r == nil:
		return generation.Errorf(generation.CodeReservationNotFound,
			"no reservation %q: it is unknown, expired, released or started", id)
	case r.reservation.reply != nil:
		return generation.Errorf(generation.CodeNotDelivered,
			"reservation %q has no pages yet: prep_recv has not been answered", id)
	case r.reservation.start != nil || r.reservation.commit != nil:
		return generation.Errorf(generation.CodeIDInUse,
			"%q is being started or committed already", id)
	}
	r.reservation.commit = reply
	if !r.reservation.writing {
		e.resolveCommit(r)
	}
	return nil
}

// resolveCommit answers a commit whose writer has ended one way or the other.
func (e *Engine) resolveCommit(r *request) {
	res := r.reservation
	if res == nil || res.commit == nil {
		return
	}
	reply := res.commit
	res.commit = nil
	whole := res.matched == res.end // Then there was nothing to write.
	if !res.delivered && !whole {
		err := generation.Errorf(generation.CodeNotDelivered,
			"positions [%d, %d) of %q have not been delivered", res.matched, res.end, r.ask.ID)
		if res.failed != nil {
			err.Message += ": " + res.failed.Error()
		}
		reply(0, err)
		return
	}
	if !res.delivered {
		must(e.scheduler.Delivered(r.id, res.end))
	}
	e.keep(r)
	reply(res.end, nil)
}

// keep ends a reservation whose keys and values stay in the prefix cache.
func (e *Engine) keep(r *request) {
	e.fence(r) // Its writer has gone, so nothing is held.
	must(e.scheduler.Finish(r.id, scheduler.ReasonStop))
	e.end(r, generation.FinishStop, nil)
}
