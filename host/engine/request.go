package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/scheduler"
)

// request is one admitted request and all it holds. The loop's goroutine owns it.
type request struct {
	id      scheduler.SequenceID
	kind    scheduler.Kind
	ask     generation.Request
	stream  *stream // nil for a remote send, and for a reservation that nobody started
	sampler *sample.Sampler
	output  []int32 // kept only where penalties look at it
	picked  int32   // the token that was chosen within the step's pass

	max, generated        int
	report                generation.Report
	accepted, first, last time.Duration

	reservation *reservation // of a prepared request, until it generates by itself
	started     bool         // of a prepared request: it generates by itself now
	released    bool         // whoever prepared it wants it no more: that is no failure
	send        *send        // of a remote send
	story       story
}

// admission bounds the requests on their way in, before the scheduler's own queue can count them.
type admission struct {
	most    atomic.Int64 // 0 is no bound
	pending atomic.Int64
}

func (a *admission) enter() error {
	pending, most := a.pending.Add(1), a.most.Load()
	if pending > most && most > 0 {
		a.pending.Add(-1)
		return generation.Errorf(generation.CodeQueueFull,
			"the queue is full: %d requests are on their way in", most)
	}
	return nil
}

func (a *admission) leave() { a.pending.Add(-1) }

// submit hands a request to the scheduler and keeps it. The prompt's window is the kind's.
func (e *Engine) submit(kind scheduler.Kind, ask generation.Request, begin, end int) (*request,
	error) {
	if err := e.refuseLost(); err != nil {
		return nil, err
	}
	if err := e.checkPrompt(&ask); err != nil {
		return nil, err
	}
	if err := checkEmitted(ask); err != nil {
		return nil, err
	}
	ask = withoutFiles(ask)
	r := &request{id: e.lastID + 1, kind: kind, ask: ask, accepted: e.Now(),
		generated: ask.Emitted, max: e.options.Context - len(ask.Prompt) + ask.Emitted}
	if ask.MaxTokens > 0 {
		r.max = min(r.max, ask.MaxTokens)
	}
	if err := r.prepareChoice(); err != nil {
		return nil, err
	}
	e.lastID++
	queued := scheduler.Request{
		ID: r.id, Kind: kind, Prompt: ask.Prompt, Embeds: items(ask.Embeds),
		MaxNew: r.max - ask.Emitted, Begin: begin, End: end, Pinned: ask.PinPrompt,
	}
	e.wishes(r, &queued)
	if err := e.scheduler.Submit(queued); err != nil {
		return nil, e.refusal(err, len(ask.Prompt))
	}
	e.requests[r.id] = r
	e.vectors += r.vectors()
	return r, nil
}

// checkPrompt refuses what no step could compute: a bad token would fail all requests of its batch.
func (e *Engine) checkPrompt(ask *generation.Request) error {
	prompt := ask.Prompt
	bad := func(format string, args ...any) error {
		return &generation.Error{Code: generation.CodeInvalidValue, Param: "prompt",
			Message: fmt.Sprintf(format, args...)}
	}
	if len(prompt) == 0 {
		return bad("the prompt is empty: it needs at least one token")
	}
	if len(prompt) >= e.options.Context {
		return tooLong(e.options.Context, len(prompt))
	}
	if err := e.checkVectors(ask); err != nil {
		return err
	}
	next := 0
	for i, token := range prompt {
		for next < len(ask.Embeds) && i >= ask.Embeds[next].End() {
			next++
		}
		if next < len(ask.Embeds) && i >= ask.Embeds[next].Start {
			continue
		}
		if most := e.options.Vocabulary; token < 0 || most > 0 && int(token) >= most {
			return bad("prompt token %d is %d, but the model has %d tokens, from 0", i, token, most)
		}
	}
	return nil
}

func tooLong(context, prompt int) *generation.Error {
	e := generation.Errorf(generation.CodeContextLength,
		"This model's maximum context length is %d tokens; the prompt has %d and leaves no room "+
			"for output. Shorten the prompt.", context, prompt)
	e.Param = "prompt"
	return e
}

// refusal words a scheduler's error for the client.
func (e *Engine) refusal(err error, prompt int) *generation.Error {
	switch {
	case errors.Is(err, scheduler.ErrQueueFull):
		full := generation.Errorf(generation.CodeQueueFull, "%v: try again later", err)
		full.RetryAfter = e.drainTime()
		return full
	case errors.Is(err, scheduler.ErrTooLong):
		g := tooLong(e.options.Context, prompt)
		g.Message = err.Error() + ". " + g.Message
		return g
	case errors.Is(err, scheduler.ErrItem):
		return &generation.Error{Code: generation.CodeInvalidValue, Param: "prompt_embeds",
			Message: err.Error()}
	case errors.Is(err, scheduler.ErrWindow):
		return generation.Errorf(generation.CodeInvalidWindow, "%v", err)
	case errors.Is(err, scheduler.ErrNotDelivered):
		return generation.Errorf(generation.CodeNotDelivered, "%v", err)
	case errors.Is(err, scheduler.ErrUnknown), errors.Is(err, scheduler.ErrState):
		return generation.Errorf(generation.CodeReservationNotFound, "%v", err)
	case errors.Is(err, scheduler.ErrEmptyPrompt), errors.Is(err, scheduler.ErrMaxNew),
		errors.Is(err, scheduler.ErrPinTooLarge):
		return generation.Errorf(generation.CodeInvalidValue, "%v", err)
	}
	return generation.AsError(err)
}

// deliverToken hands a sampled token to its reader, and the end if it was the last.
func (e *Engine) deliverToken(out outcome, now time.Duration) {
	r := out.request
	if r.first == 0 {
		r.first = now
		e.describe(r)
		e.tellPrefill(r, now)
		e.happen(r, Happening{Name: HappenFirst, At: now})
		// To the reader the first one after a change of instances is one between others.
		e.options.Watch.Token(r.ask.Emitted == 0, now-r.accepted)
	} else {
		e.options.Watch.Token(false, now-r.last)
	}
	r.last = now
	r.report.Policy, r.report.Decode = e.policy, r.last-r.first
	if out.emit {
		r.stream.push(r.report, out.token, out.logprobs)
	}
	switch {
	case out.err != nil:
		e.end(r, "", generation.Errorf(generation.CodeInternal, "%v", out.err))
	case out.finish != "":
		e.end(r, out.finish, nil)
	}
}

// describe completes the report with what the scheduler knows, at the first token.
func (e *Engine) describe(r *request) {
	info, ok := e.scheduler.Info(r.id)
	if !ok {
		return
	}
	r.report.Cached = info.Cached
	r.report.Prefill = r.first - r.accepted - r.report.Queue
	if r.story.started > 0 {
		r.report.First = r.first - r.story.started - r.report.Wait
	}
}

// end closes a request that the scheduler has finished with.
func (e *Engine) end(r *request, finish generation.Finish, err error) {
	delete(e.requests, r.id)
	e.vectors -= r.vectors()
	e.paced()
	e.forget(r)
	if r.stream != nil {
		r.stream.end(r.report, finish, err)
	}
	f := e.finished(r, finish, err)
	e.remember(r, f)
	e.tellEnd(r, &f)
	e.options.Watch.Finished(f)
}

// finished sums up a request for metrics and the log.
func (e *Engine) finished(r *request, finish generation.Finish, err error) Finished {
	now := e.Now()
	f := Finished{
		ID: r.ask.ID, Tenant: r.ask.Hints.Tenant, PromptTokens: len(r.ask.Prompt),
		OutputTokens: r.generated - r.ask.Emitted, Report: r.report, Total: now - r.accepted,
		Reason: string(finish), Kind: r.kind,
	}
	if r.first > 0 {
		f.FirstToken = r.first - r.accepted
		f.Decode = r.last - r.first
	}
	if err != nil {
		f.Reason = "error"
		if r.released || generation.AsError(err).Code == generation.CodeCancelled {
			f.Reason = "cancelled"
		}
		f.Err = err
	}
	return f
}

// fail ends a request whose sequence the scheduler has already given up.
func (e *Engine) fail(r *request, err *generation.Error) {
	if r == nil {
		return
	}
	if r.send != nil {
		e.cancelSend(r, err)
		return
	}
	e.fence(r)
	e.answer(r, err)
	e.end(r, "", err)
}

// drop ends a request in any state and releases all it holds.
func (e *Engine) drop(r *request, err *generation.Error) {
	if r == nil || e.requests[r.id] == nil {
		return
	}
	if r.send != nil {
		e.cancelSend(r, err)
		return
	}
	lease, fenced := e.fence(r)
	held, _ := e.scheduler.Cancel(r.id) // Unknown only when it has just finished.
	e.settle(r.id, lease, held, fenced)
	e.answer(r, err)
	e.end(r, "", err)
}

// answer gives an error to the calls that still wait for a reservation or its start.
func (e *Engine) answer(r *request, err *generation.Error) {
	if r.reservation != nil && r.reservation.reply != nil {
		r.reservation.reply(generation.Reservation{}, err)
		r.reservation.reply = nil
	}
	if r.reservation != nil && r.reservation.start != nil {
		r.reservation.start.reply(nil, err)
		r.reservation.start = nil
	}
	if r.reservation != nil && r.reservation.commit != nil {
		r.reservation.commit(0, err)
		r.reservation.commit = nil
	}
}

// cancelled is the error of a request whose client has gone.
func cancelled() *generation.Error {
	return generation.Errorf(generation.CodeCancelled, "the client went away")
}
