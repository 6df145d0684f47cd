package engine

import (
	"context"
	"fmt"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// reservation is what a prepared request holds until it generates by itself.
type reservation struct {
	// the call that waits for the pages; nil once answered
	reply func(generation.Reservation, error)
	lease string // "" before the grant and after the release
	end   int
	// matched positions are here from the prefix cache, delivered ones from a sender.
	matched   int
	writing   bool
	delivered bool
	failed    *transfer.Error
	// start is the call that waits for a live writer to end one way or the other, commit another
	// one: there is at most one of the two.
	start  *pendingStart
	commit func(tokens int, err error)
}

type pendingStart struct {
	begin int
	reply func(generation.Stream, error)
	ctx   context.Context
	ask   generation.Request
}

// PrepareReceive implements generation.Handoff.
func (e *Engine) PrepareReceive(
	ctx context.Context, ask generation.Request, end int,
) (generation.Reservation, error) {
	type answer struct {
		generation.Reservation
		err error
	}
	answers := make(chan answer, 1)
	r, err := call(ctx, e, func() (*request, error) {
		return e.prepare(ask, end, func(res generation.Reservation, err error) {
			answers <- answer{res, err}
		})
	})
	if err != nil {
		return generation.Reservation{}, err
	}
	select {
	case a := <-answers:
		if a.err != nil || ctx.Err() == nil {
			return a.Reservation, a.err
		}
	case <-e.stopped:
		return generation.Reservation{}, stopping()
	case <-ctx.Done():
	}
	id := r.id // Nobody will hear of it.
	e.inbox.put(func() { e.drop(e.requests[id], cancelled()) })
	return generation.Reservation{}, cancelled()
}

// prepare queues a reservation; reply is called once, when its pages are there or cannot be.
func (e *Engine) prepare(
	ask generation.Request, end int, reply func(generation.Reservation, error),
) (*request, error) {
	if e.receiver == nil {
		return nil, generation.Errorf(generation.CodeInvalidValue,
			"this instance does not receive: its role is prefill, or it has no internal listener")
	}
	if err := e.refuseDraining(); err != nil {
		return nil, err
	}
	if ask.ID == "" {
		return nil, &generation.Error{Code: generation.CodeInvalidValue, Param: "user",
			Message: "user is empty: it is the id that ties the micro-serving calls together"}
	}
	if e.labels[ask.ID] != nil {
		return nil, &generation.Error{Code: generation.CodeIDInUse, Param: "user",
			Message: fmt.Sprintf("request id %q has a reservation already", ask.ID)}
	}
	end = wholeEnd(&ask, end)
	r, err := e.submit(scheduler.PrepareReceive, ask, 0, end)
	if err != nil {
		return nil, err
	}
	r.reservation = &reservation{reply: reply, end: end}
	e.labels[ask.ID] = r
	return r, nil
}

// wholeEnd counts a negative end of a window from the prompt's end and takes it back to the start
// of a part that is computed whole. What is no window stays as it is, to be refused by its name.
func wholeEnd(ask *generation.Request, end int) int {
	if n := len(ask.Prompt); end < 0 && end >= -n {
		end += n
	}
	return ask.Whole(end)
}

// grant makes the lease of a reservation whose pages are there, and answers the call.
func (e *Engine) grant(g *scheduler.Grant) {
	r := e.requests[g.ID]
	res := r.reservation
	res.matched = g.Matched
	lease := fmt.Sprintf("r%d", r.id)
	groups := [][]transfer.Segment{segments(g.Segments)} // One a model.
	for _, draft := range g.Drafts {
		groups = append(groups, segments(draft))
	}
	metadata, err := e.receiver.Grant(lease, transfer.Reservation{
		Window: transfer.Window{Begin: g.Matched, End: g.End}, Segments: groups,
		FreePages: e.scheduler.Available(), Running: e.scheduler.Stats().Holding,
	})
	if err != nil {
		e.drop(r, generation.Errorf(generation.CodeQueueFull, "grant a lease: %v", err))
		return
	}
	res.lease = lease
	e.leases[lease] = r
	e.leased(r)
	r.report.Queue = e.Now() - r.accepted
	res.reply(generation.Reservation{Metadata: metadata, Matched: g.Matched, End: g.End}, nil)
	res.reply = nil
	e.happen(r, Happening{Name: HappenReserved, At: r.accepted, Took: r.report.Queue,
		Tokens: g.End - g.Matched})
}

// leased tells policies that the time of a lease begins anew.
func (e *Engine) leased(r *request) {
	if e.options.Lease > 0 {
		e.scheduler.SetLease(r.id, e.Now()+e.options.Lease)
	}
}

// segments turns [nseg, pos, len, ...] into pairs.
func segments(flat []int) []transfer.Segment {
	list := make([]transfer.Segment, flat[0])
	for i := range list {
		list[i] = transfer.Segment{Slot: flat[1+2*i], Count: flat[2+2*i]}
	}
	return list
}

// StartGenerate implements generation.Handoff.
func (e *Engine) StartGenerate(
	ctx context.Context, ask generation.Request, begin int,
) (generation.Stream, error) {
	type answer struct {
		stream generation.Stream
		err    error
	}
	answers := make(chan answer, 1)
	_, err := call(ctx, e, func() (struct{}, error) {
		return struct{}{}, e.start(pendingStart{begin: begin, ctx: ctx, ask: ask,
			reply: func(s generation.Stream, err error) { answers <- answer{s, err} }})
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answers:
		return a.stream, a.err
	case <-e.stopped:
		return nil, stopping()
	case <-ctx.Done():
		e.inbox.put(func() { e.drop(e.labels[ask.ID], cancelled()) })
		return nil, cancelled()
	}
}

// start finds the reservation and goes on from it as soon as its writer has ended.
func (e *Engine) start(p pendingStart) error {
	p.begin = wholeEnd(&p.ask, p.begin)
	r := e.labels[p.ask.ID]
	switch {
	case e.lost.Load() != nil:
		return e.refuseLost()
	case r == nil && p.begin == 0 && e.draining:
		return e.refuseDraining()
	case r == nil && p.begin == 0:
		r, err := e.submit(scheduler.Local, p.ask, 0, 0)
		if err != nil {
			return err
		}
		p.reply(e.open(p.ctx, r), nil)
		return nil
	case r == nil:
		return generation.Errorf(generation.CodeReservationNotFound,
			"no reservation %q: it is unknown, expired or released; begin 0 needs none", p.ask.ID)
	case !r.ask.SamePrompt(&p.ask):
		return &generation.Error{Code: generation.CodeInvalidValue, Param: "prompt",
			Message: fmt.Sprintf("the prompt differs from the one that %q prepared", p.ask.ID)}
	case r.ask.Emitted != p.ask.Emitted:
		return &generation.Error{Code: generation.CodeInvalidValue, Param: "emitted_tokens",
			Message: fmt.Sprintf("emitted_tokens is %d, but %q was prepared with %d",
				p.ask.Emitted, p.ask.ID, r.ask.Emitted)}
	case p.begin < 0 || p.begin > r.reservation.end:
		return generation.Errorf(generation.CodeInvalidWindow,
			"begin is %d, but only [0, %d) was prepared", p.begin, r.reservation.end)
	case r.reservation.reply != nil:
		return generation.Errorf(generation.CodeNotDelivered,
			"reservation %q has no pages yet: prep_recv has not been answered", p.ask.ID)
	case r.reservation.start != nil || r.reservation.commit != nil:
		return generation.Errorf(generation.CodeIDInUse,
			"%q is being started or committed already", p.ask.ID)
	}
	res := r.reservation
	res.start = &p
	if !res.writing || p.begin <= res.matched {
		e.resolveStart(r)
	}
	return nil
}

// resolveStart lets a started reservation go on: from what was delivered, or, when the transfer was
// lost or never came, by computing the prompt here if the configuration says so.
func (e *Engine) resolveStart(r *request) {
	res := r.reservation
	p := res.start
	if p == nil {
		return
	}
	res.start = nil
	if !res.delivered && p.begin > res.matched && !e.options.RecomputeOnFailure {
		err := generation.Errorf(generation.CodeNotDelivered,
			"positions [%d, %d) of %q have not been delivered", res.matched, p.begin, r.ask.ID)
		if res.failed != nil {
			err = generation.Errorf(generation.CodeTransferFailed,
				"the transfer of %q was lost: %v", r.ask.ID, res.failed)
			e.drop(r, err)
		}
		p.reply(nil, err)
		return
	}
	if err := e.proceed(r, p.begin); err != nil {
		p.reply(nil, e.refusal(err, len(r.ask.Prompt)))
		e.drop(r, generation.AsError(err))
		return
	}
	e.takeOver(r, p)
}

// proceed makes the scheduler compute the rest of the prompt, and ends the lease.
func (e *Engine) proceed(r *request, begin int) error {
	lease, fenced := e.fence(r)
	if r.reservation.delivered || r.reservation.end == 0 {
		return e.scheduler.StartGenerate(r.id, begin)
	}
	if !fenced {
		e.options.Watch.Transfer(transfer.Event{Kind: transfer.Overtaken,
			Direction: transfer.Receiving, ID: lease})
	}
	held, err := e.scheduler.Recompute(r.id)
	e.settle(r.id, lease, held, fenced)
	return err
}

// takeOver turns the reservation into a generation of its own.
func (e *Engine) takeOver(r *request, p *pendingStart) {
	delete(e.labels, r.ask.ID)
	r.reservation, r.started = nil, true
	r.story.started = e.Now()
	e.happen(r, Happening{Name: HappenStarted, At: r.story.started})
	prepared := r.ask
	vectors := r.ask.Embeds // They are the same, and counted.
	r.ask = p.ask
	r.ask.Embeds = vectors
	r.ask.PinPrompt, r.ask.Hints = prepared.PinPrompt, prepared.Hints
	if p.ask.MaxTokens > 0 {
		r.max = min(r.max, p.ask.MaxTokens)
	}
	if err := r.prepareChoice(); err != nil {
		p.reply(nil, err)
		e.drop(r, generation.AsError(err))
		return
	}
	p.reply(e.open(p.ctx, r), nil)
}

// fence ends the lease of a request, if it has one, and reports whether no writer is left. The
// scheduler hears of a writer whose Opened event is still on its way, so that what comes next keeps
// the pages out of reach.
func (e *Engine) fence(r *request) (lease string, fenced bool) {
	if r.reservation == nil || r.reservation.lease == "" {
		return "", true
	}
	lease = r.reservation.lease
	r.reservation.lease = ""
	delete(e.leases, lease)
	fenced = e.receiver.Release(lease)
	if state, _ := e.scheduler.State(r.id); !fenced && state == scheduler.Prepared {
		must(e.scheduler.Receiving(r.id))
	}
	return lease, fenced
}

// settle frees pages in quarantine, if held says so, now or when their writer is fenced.
func (e *Engine) settle(id scheduler.SequenceID, lease string, held, fenced bool) {
	switch {
	case !held:
	case fenced:
		must(e.scheduler.Release(id))
	default:
		e.fencing[lease] = id
	}
}

// forget drops the names under which a request is found.
func (e *Engine) forget(r *request) {
	if e.labels[r.ask.ID] == r {
		delete(e.labels, r.ask.ID)
	}
	if r.reservation != nil && r.reservation.lease != "" {
		delete(e.leases, r.reservation.lease)
	}
}

// Release implements generation.Handoff.
func (e *Engine) Release(ctx context.Context, id string) error {
	_, err := call(ctx, e, func() (struct{}, error) {
		e.release(id)
		return struct{}{}, nil
	})
	return err
}

// release drops the reservation of an id, if there is one.
func (e *Engine) release(id string) {
	if r := e.labels[id]; r != nil {
		r.released = true
		e.drop(r, generation.Errorf(generation.CodeReservationNotFound,
			"reservation %q was released", id))
	}
}
