package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// send is the sending side of a handoff. Before the receiver has accepted the opening frame the
// request has no sequence yet: nothing is computed for a receiver that would refuse it.
type send struct {
	name     string // of the transfer
	window   transfer.Window
	outgoing Outgoing
	reply    func(generation.Sent, error)
	chunks   int
	peer     uint16 // number of the receiver, 0 none
	marked   int64  // bytes computed for it and not acknowledged
	sealed   int    // positions below were sealed
	// queued: the scheduler knows the sequence. cause: why it was given up, answered when the
	// transfer has ended and nobody reads the pages.
	queued bool
	cause  *generation.Error
}

// RemoteSend implements generation.Handoff.
func (e *Engine) RemoteSend(
	ctx context.Context, ask generation.Request, s generation.Send,
) (generation.Sent, error) {
	type answer struct {
		sent generation.Sent
		err  error
	}
	answers := make(chan answer, 1)
	r, err := call(ctx, e, func() (*request, error) {
		return e.beginSend(ask, s, func(sent generation.Sent, err error) {
			answers <- answer{sent, err}
		})
	})
	if err != nil {
		return generation.Sent{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		e.inbox.put(func() { e.drop(e.requests[r.id], cancelled()) })
	})
	defer stop()
	select {
	case a := <-answers:
		return a.sent, a.err
	case <-e.stopped:
		return generation.Sent{}, stopping()
	}
}

// beginSend checks all that can be known here and dials the receiver. The rest follows with the
// transfer's events.
func (e *Engine) beginSend(
	ask generation.Request, s generation.Send, reply func(generation.Sent, error),
) (*request, error) {
	if e.sender == nil {
		return nil, generation.Errorf(generation.CodeInvalidValue,
			"this instance does not send: its role is decode")
	}
	if err := e.refuseLost(); err != nil {
		return nil, err
	}
	if err := e.refuseDraining(); err != nil {
		return nil, err
	}
	window, err := windowOf(s, &ask)
	if err != nil {
		return nil, err
	}
	if err := e.checkPrompt(&ask); err != nil {
		return nil, err
	}
	ask = withoutFiles(ask)
	metadata, err := e.sender.Parse(s.Metadata, window)
	if err != nil {
		return nil, transferError(err)
	}
	e.lastID++
	r := &request{id: e.lastID, kind: scheduler.RemoteSend, ask: ask, accepted: e.Now(),
		generated: ask.Emitted,
		send: &send{name: fmt.Sprintf("s%d", e.lastID), window: window, reply: reply,
			peer: e.peers.index(metadata.Address)}}
	e.peers.heard(r.send.peer, metadata)
	r.send.outgoing, err = e.sender.Open(r.send.name, metadata)
	if err != nil {
		return nil, transferError(err)
	}
	e.requests[r.id], e.sends[r.send.name] = r, r
	e.vectors += r.vectors()
	return r, nil
}

// windowOf checks the window of a remote send.
func windowOf(s generation.Send, ask *generation.Request) (transfer.Window, error) {
	n := len(ask.Prompt)
	w := transfer.Window{Begin: ask.Whole(s.Begin), End: wholeEnd(ask, s.End)}
	if w.Begin < 0 || w.Begin >= w.End || w.End >= n {
		return w, generation.Errorf(generation.CodeInvalidWindow,
			"begin %d and end %d are not a window of %d prompt tokens: 0 <= begin < end < "+
				"%d is needed "+
				"(the last token is never sent)", s.Begin, s.End, n, n)
	}
	return w, nil
}

// queueSend submits the sequence of a transfer that the receiver accepted.
func (e *Engine) queueSend(r *request, from int) {
	if r.send.cause != nil || r.send.queued {
		return
	}
	queued := scheduler.Request{
		ID: r.id, Kind: scheduler.RemoteSend, Prompt: r.ask.Prompt,
		Embeds: items(r.ask.Embeds), MaxNew: 1, Begin: from, End: r.send.window.End,
		Pinned: r.ask.PinPrompt, Peer: r.send.peer,
	}
	e.wishes(r, &queued)
	if err := e.scheduler.Submit(queued); err != nil {
		e.cancelSend(r, e.refusal(err, len(r.ask.Prompt)))
		return
	}
	r.send.queued = true
}

// sendLayer ships what a layer of a model has just appended, and what the prefix cache held of it.
func (e *Engine) sendLayer(plan *scheduler.Plan, model, layer int) {
	for i := range plan.Sends {
		s := &plan.Sends[i]
		r := e.requests[s.ID]
		// An error here is the transfer's end; its Failed event says so to the loop.
		_ = r.send.outgoing.Send(model, layer, s.FreshEnd, s.Table(model))
	}
}

// sealSend says after a committed chunk that all its layers are on their way.
func (e *Engine) sealSend(s *scheduler.Send) {
	r := e.requests[s.ID]
	if r == nil {
		return
	}
	r.send.chunks++
	tokens := s.CachedEnd - s.CachedStart + s.FreshEnd - s.FreshStart
	e.peers.mark(r.send, int64(tokens*e.scheduler.TokenBytes()))
	switch {
	case s.Last:
		r.story.sent = e.Now()
		e.tellPrefill(r, r.story.sent)
		r.send.outgoing.Seal()
	case s.FreshEnd > r.send.sealed: // A preempted prompt computes again what has been sent.
		r.send.sealed = s.FreshEnd
		r.send.outgoing.SealChunk(s.FreshEnd)
	}
}

// cancelSend gives a remote send up. The call is answered when the transfer has ended, so that an
// answer means that nothing is left behind.
func (e *Engine) cancelSend(r *request, cause *generation.Error) {
	if r.send.cause != nil {
		return
	}
	r.send.cause = cause
	e.scheduler.Doom(r.id)
	r.send.outgoing.Cancel()
}

// endSend closes a remote send whose transfer has ended: nobody reads its pages any more.
func (e *Engine) endSend(r *request, sent generation.Sent, failure *generation.Error) {
	if r.send.cause != nil {
		failure = r.send.cause
	}
	if r.send.queued {
		e.releaseSend(r.id)
	}
	delete(e.sends, r.send.name)
	sent.Chunks, sent.Queue = r.send.chunks, r.report.Queue
	sent.Prefill = max(0, r.story.sent-r.story.begun)
	r.report.Chunks, r.report.Cached = sent.Chunks, sent.Cached
	r.report.BytesSent, r.report.Transfer = sent.Bytes, sent.Elapsed
	if failure != nil {
		r.send.reply(generation.Sent{}, failure)
		e.end(r, "", failure)
		return
	}
	r.send.reply(sent, nil)
	e.end(r, generation.FinishStop, nil)
}

// releaseSend ends the sequence of a remote send in whatever state it is.
func (e *Engine) releaseSend(id scheduler.SequenceID) {
	state, ok := e.scheduler.State(id)
	if !ok {
		return
	}
	if state != scheduler.Finished {
		held, err := e.scheduler.Cancel(id)
		must(err)
		if !held {
			return
		}
	}
	must(e.scheduler.SendReleased(id))
}

// transferError words a transfer's error for the client.
func transferError(err error) *generation.Error {
	t, ok := errors.AsType[*transfer.Error](err)
	if !ok {
		return generation.AsError(err)
	}
	return generation.Errorf(generation.Code(t.Reason.Code()), "%v", t)
}
