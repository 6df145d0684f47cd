package router

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// prefill has the prompt computed up to where the decode instance shall go on, and returns that
// position: reserved there and sent by a prefill instance, or 0 where the decode instance computes
// it all. A prefill that is lost is no error: the decode instance says what becomes of it.
func (f *forward) prefill(ctx context.Context, decode string) (begin int, err error) {
	prompt := f.prompt()
	end := 0
	f.settle(func() {
		end = f.router.pool.Split(&f.ticket, len(prompt), f.router.options.Balance)
		end = f.ask.Whole(end)
		f.ticket.Compute(placement.Prefill, end)
		f.ticket.Compute(placement.Decode, len(prompt)-end)
	})
	if end == 0 {
		f.decide("local")
		return 0, nil
	}
	call := f.call()
	call.End = &end
	reserved, err := f.reserve(ctx, decode, call)
	if err != nil {
		return 0, err
	}
	f.router.advanced()
	matched := reserved.PrefixMatchedLength
	if len(f.emitted) == 0 {
		f.report.Cached = matched
	}
	f.settle(func() {
		f.ticket.Compute(placement.Prefill, max(0, end-matched))
		f.ticket.Compute(placement.Decode, len(prompt)-max(end, matched))
	})
	if !f.router.balance().Worth(end - matched) {
		f.decide("local")
		return min(matched, end), nil
	}
	if end < len(prompt)-1 {
		f.decide("split")
	} else {
		f.decide("remote")
	}
	call = f.call()
	call.Begin, call.End, call.KVAddrInfo = &matched, &end, reserved.KVAppendMetadata
	sent, err := f.send(ctx, call)
	if !sent && f.router.recomputes(f.ticket.Instance(placement.Decode)) {
		end = matched // It need not wait until it notices itself that nobody writes any more.
	}
	return end, err
}

// recomputes reports whether a decode instance computes itself what a lost transfer leaves open.
func (r *Router) recomputes(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[instanceKey(placement.Decode, name)].Recomputes
}

// decide tells where the prompt is computed, once a request.
func (f *forward) decide(where string) {
	if f.attempts == 1 {
		f.router.options.Watch.Placed(where)
	}
}

// send makes the remote_send call; where a prefill instance is lost or full another one is tried.
// It fails only with ctx, and reports whether all was delivered as far as is known.
func (f *forward) send(ctx context.Context, call *openai.Call) (delivered bool, err error) {
	if len(f.emitted) == 0 {
		f.report.Queue = time.Since(f.accepted)
	}
	for try := 0; ; try++ {
		begun := time.Now()
		var sent openai.RemoteSendResponse
		span, end := f.calling("remote_send", placement.Prefill)
		err = f.router.postWatched(ctx, longCall{
			watching: watching{url: f.at[placement.Prefill], role: placement.Prefill,
				name: f.ticket.Instance(placement.Prefill), silences: mostSilences},
			path: openai.PathRemoteSend, body: call, to: &sent, header: f.headers(span)})
		end(err)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if len(f.emitted) == 0 {
			f.spent(time.Since(begun), &sent)
		}
		if err == nil {
			return true, nil
		}
		if try >= f.router.options.Retries || !f.another(ctx, err) {
			f.router.options.Log.Warn("remote prefill failed; the decode instance decides",
				"id", f.id, "decode", f.ticket.Instance(placement.Decode), "error", err)
			f.unsent = err
			return false, nil
		}
	}
}

// undelivered words a decode instance's refusal to compute itself what a transfer left open. The
// client asked for no transfer: it is told that one failed, and why, as the prefill side has it
// where that failed first; the id of the attempt means nothing to it.
func (f *forward) undelivered(err error) error {
	fault, ok := errors.AsType[*openai.Error](err)
	if !ok || fault.Code != openai.CodeNotDelivered && fault.Code != openai.CodeKVTransferFailed {
		return err
	}
	text := fault.Message
	if f.unsent != nil {
		text = "the remote prefill failed: " + f.unsent.Error()
	}
	name := f.name()
	text = strings.NewReplacer(strconv.Quote(name), "this request", name, "this request").
		Replace(text)
	return openai.Errorf(openai.CodeKVTransferFailed, "", "%s", text)
}

// spent adds a remote_send to what the time to the first token is made of: the sender says what was
// queue and what computation; the rest of the call is what the transfer took beyond that. One that
// failed says nothing: all of it counts as computation.
func (f *forward) spent(took time.Duration, sent *openai.RemoteSendResponse) {
	queue := min(took, openai.FromMilliseconds(sent.Queue))
	prefill := min(took-queue, openai.FromMilliseconds(sent.Prefill))
	if prefill == 0 {
		prefill = took - queue
	}
	f.remote = true
	f.report.Queue += queue
	f.report.Prefill += prefill
	f.report.Handoff += took - queue - prefill
	f.report.Chunks += sent.Chunks
}

// started adds what the decode instance says of its part, with its first token.
func (f *forward) started(begun time.Time, t openai.Timing) {
	switch {
	case len(f.emitted) > 0:
	case f.remote:
		f.report.Wait = t.Wait + t.Queue
	default: // It computed the prompt itself, after whatever reserving took.
		f.report.Queue = begun.Sub(f.accepted) + t.Queue + t.Wait
		f.report.Prefill = t.Prefill + t.First
	}
}

// another gives the ticket another prefill instance after an error of its own, if that may help and
// there is one.
func (f *forward) another(ctx context.Context, err error) (found bool) {
	name := f.ticket.Instance(placement.Prefill)
	err = f.lost(ctx, placement.Prefill, err)
	f.router.options.Watch.Retried("prefill_" + reasonOf(err))
	if !f.elsewhere(err) {
		return false
	}
	f.settle(func() {
		f.ticket.Exclude(placement.Prefill)
		found = f.router.pool.PlacePrefill(&f.ticket)
		f.find()
	})
	if found {
		f.router.options.Log.Warn("another prefill instance is tried", "id", f.id, "lost", name,
			"next", f.ticket.Instance(placement.Prefill), "error", err)
	}
	return found
}

// reserve makes the prep_recv call. A client that leaves does not cut it off: the instance might
// take the call up afterwards, and hold pages of which nobody knows. The reservation is released
// until the call has ended instead; whoever gets the error releases it once more.
func (f *forward) reserve(ctx context.Context, decode string, call *openai.Call,
) (reserved openai.PrepareReceiveResponse, err error) {
	const tries, pause = 5, time.Second
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan struct{})
	span, end := f.calling("prep_recv", placement.Decode)
	go func() {
		defer close(ended)
		err = f.router.post(detached, decode+openai.PathPrepareReceive, call, &reserved,
			f.headers(span))
		end(err)
	}()
	select {
	case <-ended:
		return reserved, err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == errSilent {
		cancel()
		<-ended
		return reserved, errSilent
	}
	for range tries {
		f.router.release(decode, f.name())
		select {
		case <-ended:
			return reserved, ctx.Err()
		case <-time.After(pause):
		}
	}
	cancel()
	<-ended
	return reserved, ctx.Err()
}

// release drops a reservation, whoever has gone meanwhile.
func (r *Router) release(decode, id string) {
	const most = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	err := r.post(ctx, decode+openai.PathRelease, openai.Release{User: id}, &struct{}{}, nil)
	if err != nil {
		r.options.Log.Debug("release failed; the lease will end it", "id", id, "error", err)
	}
}
