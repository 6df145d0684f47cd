package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// forward is one request on its way through the instances.
type forward struct {
	router *Router
	ask    generation.Request
	out    *stream
	reader context.Context // ends when nobody reads any more
	id     string
	ticket placement.Ticket
	at     [2]string // the URLs of the ticket's instances, by placement.Role

	accepted time.Time
	tries    int // attempts that brought nothing, since the last token
	attempts int
	emitted  []int32 // the tokens that were handed on
	remote   bool    // a prefill instance had a part in it
	unsent   error   // why the prefill instances of the latest attempt delivered nothing
	decode   string  // the decode instance of the latest attempt
	formed   bool    // the asked form has ended with the last of them
	report   generation.Report
}

// run tries instances until one has generated to the end or the tries are used up. An attempt that
// brought tokens counts as none: the next one goes on behind them.
func (f *forward) run(ctx context.Context) error {
	defer f.settle(func() {
		f.ticket.Release(placement.Prefill)
		f.ticket.Release(placement.Decode)
	})
	var last error
	for {
		if finish := f.over(); finish != "" {
			last := generation.Update{Finish: finish, Report: f.report}
			f.out.send(f.reader, result{update: last})
			return nil
		}
		if err := f.placeSoon(ctx, last != nil); err != nil {
			if last != nil { // Why says more than that nobody is left.
				f.router.options.Log.Warn("no instance is left for the request", "id", f.id,
					"lost", f.decode, "tokens", len(f.emitted), "error", last)
				return f.wire(last)
			}
			return f.wire(err)
		}
		if last != nil {
			f.moved(last)
		}
		had := len(f.emitted)
		err := f.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return f.wire(err)
		}
		if len(f.emitted) > had {
			f.tries = 0
			f.settle(f.ticket.Forgive)
		}
		if f.tries >= f.router.options.Retries || !f.elsewhere(err) {
			return f.wire(err)
		}
		f.tries++
		last = err
		f.settle(func() { f.ticket.Exclude(placement.Decode) })
	}
}

// over says how the output has ended already, although nobody said so: the instance was lost
// between the last token and the word about it. "" when more may come.
func (f *forward) over() generation.Finish {
	if len(f.emitted) == 0 {
		return ""
	}
	most := f.ask.MaxTokens
	if m, fault := f.router.Model(); fault == nil {
		left := m.Instance.Context - len(f.ask.Prompt)
		if most == 0 || left < most {
			most = left
		}
	}
	switch {
	case f.formed:
		return generation.FinishStop
	case most > 0 && len(f.emitted) >= most:
		return generation.FinishLength
	}
	return ""
}

// Bounds of the wait for an instance to come back that a request needs which has begun.
const (
	comeBackWithin = 2 * time.Second
	comeBackEvery  = 50 * time.Millisecond
)

// placeSoon is place. A request that has begun waits a moment for somebody to come back.
func (f *forward) placeSoon(ctx context.Context, begun bool) error {
	for until := time.Now().Add(comeBackWithin); ; {
		err := f.place()
		if err == nil || !begun || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(comeBackEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// place gives the ticket its instances. Where the request has failed on every one that is up, its
// own may be tried again: a connection was cut, and both ends live.
func (f *forward) place() (err error) {
	remote := f.router.balance().Worth(len(f.prompt()) - 1)
	f.settle(func() {
		place := f.router.pool.PlaceDecode
		if remote {
			place = f.router.pool.Place
		}
		if err = place(&f.ticket); errors.Is(err, placement.ErrTried) {
			f.ticket.Forgive()
			err = place(&f.ticket)
		}
		if errors.Is(err, placement.ErrNoDecode) {
			err = f.router.nobody()
		}
		f.find()
	})
	return err
}

// find notes where the ticket's instances are, also if they leave before the request ends. The
// router's lock is held.
func (f *forward) find() {
	for _, role := range []placement.Role{placement.Prefill, placement.Decode} {
		f.at[role] = f.router.urls[role][f.ticket.Instance(role)]
	}
}

// prompt is what an instance is given: what the client asked for, then what came of it so far.
func (f *forward) prompt() []int32 { return slices.Concat(f.ask.Prompt, f.emitted) }

// settle changes the ticket under the router's lock.
func (f *forward) settle(change func()) {
	f.router.settle(func(*placement.Pool) { change() })
}

// elsewhere reports whether another decode instance may do better: this one did not answer, it is
// full or leaving, has lost its device, or it knows nothing of the request any more. In the middle
// of a stream that is the operator's choice.
func (f *forward) elsewhere(err error) bool {
	if len(f.emitted) > 0 && f.router.options.FailLost {
		return false
	}
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		switch fault.Code {
		case openai.CodeQueueFull, openai.CodeDraining, openai.CodeModelLoading,
			openai.CodeDeviceLost, openai.CodeReservationNotFound:
			return true
		}
		return false
	}
	return unreachable(err)
}

func reasonOf(err error) string {
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		return string(fault.Code)
	}
	return "unreachable"
}

// attempt drives the calls of one request over the instances of the ticket, as long as the decode
// instance lives. Each attempt has an id of its own: what an earlier one left on an instance, or
// what still comes from there, is nothing of this one.
func (f *forward) attempt(ctx context.Context) error {
	f.attempts++
	f.decode = f.ticket.Instance(placement.Decode)
	decode := f.at[placement.Decode]
	watched, end := f.router.watched(ctx, watching{url: decode, role: placement.Decode,
		name: f.ticket.Instance(placement.Decode), silences: mostSilences})
	err := f.drive(watched, decode)
	silent := end()
	if err != nil && silent {
		err = errSilent
	}
	if err != nil && ctx.Err() == nil {
		err = f.lost(ctx, placement.Decode, err)
	}
	return err
}

// name is the id of the current attempt.
func (f *forward) name() string {
	if f.attempts <= 1 {
		return f.id
	}
	return fmt.Sprintf("%s.%d", f.id, f.attempts)
}

// drive makes the calls of one attempt.
func (f *forward) drive(ctx context.Context, decode string) error {
	if len(f.emitted) == 0 { // Nothing of an earlier attempt is part of what comes now.
		f.report, f.remote = generation.Report{}, false
	}
	f.unsent = nil
	begin, err := f.prefill(ctx, decode)
	f.settle(func() { f.ticket.Release(placement.Prefill) })
	if err != nil {
		f.giveBack(ctx, decode)
		return err
	}
	call := f.call()
	call.Begin, call.Stream, call.ReturnTokenIDs = &begin, true, true
	call.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	call.ResponseFormat = f.ask.Form
	span, end := f.calling("start_generate", placement.Decode)
	begun := time.Now()
	response, err := f.router.open(ctx, decode+openai.PathStartGenerate, call, f.headers(span))
	if err != nil {
		end(err)
		f.giveBack(ctx, decode)
		return f.undelivered(err)
	}
	defer response.Body.Close()
	f.started(begun, openai.ParseTiming(response.Header.Get(openai.HeaderTiming)))
	f.report.Policy = response.Header.Get(openai.HeaderPolicy)
	err = f.relay(response.Body)
	end(err)
	return err
}

// giveBack drops the reservation. Nobody waits for a silent instance: if it comes back, it hears of
// it; if not, the lease ends.
func (f *forward) giveBack(ctx context.Context, decode string) {
	id := f.name()
	if context.Cause(ctx) == errSilent {
		go f.router.release(decode, id)
		return
	}
	f.router.release(decode, id)
}

// lost takes an instance out that did not answer, until it answers a check. It is asked at once: a
// connection that was cut says nothing about the instance. It returns the error, or the better one
// that the asking brought.
func (f *forward) lost(ctx context.Context, role placement.Role, err error) error {
	name := f.ticket.Instance(role)
	if !unreachable(err) {
		return f.router.disown(ctx, placement.Instance{Role: role, Name: name}, err)
	}
	f.router.lose(role, name, err)
	if errors.Is(err, errSilent) {
		go f.router.look(context.WithoutCancel(ctx), role, name)
		return err
	}
	_ = f.router.look(ctx, role, name) // What it finds is noted.
	return err
}
