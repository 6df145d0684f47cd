package engine

import (
	"cmp"
	"strconv"
	"time"

	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// What happens to requests, by the names under which traces show it.
const (
	HappenQueue    = "queue"         // from acceptance to its first chunk
	HappenPolicy   = "policy.decide" // the plan of the step that began it
	HappenChunk    = "prefill chunk"
	HappenPrefill  = "prefill" // from its first chunk to its first token, or to the last chunk sent
	HappenReserved = "reserved"
	HappenStarted  = "started"
	HappenTransfer = "kv.transfer"
	HappenFirst    = "first token"
	HappenDecode   = "decode"
	HappenFinished = "finished"
	HappenStep     = "step" // of the loop; the only one without a request
)

// Happening is something that happened, for a trace. Times are the engine's own.
type Happening struct {
	// Name is one of the constants above, Request the client's label and Traceparent the place of
	// the request in its trace; "" is none.
	Name, Request, Traceparent string
	// At is when it began, Took how long it lasted; 0 is a moment.
	At, Took time.Duration
	Tokens   int
	Note     string
	// Chunks are the parts of a prefill, at most 128.
	Chunks []HappeningChunk
}

// HappeningChunk is one part of a prefill.
type HappeningChunk struct {
	At     time.Duration
	Tokens int
}

// mostChunks bounds the parts that a prefill is told with.
const mostChunks = 128

// story is what a request remembers for the trace.
type story struct {
	begun   time.Duration // its first chunk; 0: not yet
	started time.Duration // when what was prepared was asked to go on; 0: it was not
	sent    time.Duration // when the last chunk of a remote send was computed
	chunks  []HappeningChunk
}

// happen hands a happening of a request on.
func (e *Engine) happen(r *request, h Happening) {
	if e.options.Trace == nil {
		return
	}
	h.Request, h.Traceparent = cmp.Or(r.ask.RequestID, r.ask.ID), r.ask.Traceparent
	e.options.Trace(h)
}

// tellChunk tells of a chunk that was computed, and with the first one of the wait before it.
func (e *Engine) tellChunk(r *request, chunk scheduler.Chunk, at stages) {
	if e.options.Trace == nil {
		return
	}
	tokens, took := chunk.End-chunk.Start, at.commit-at.run
	if len(r.story.chunks) == 0 {
		e.happen(r, Happening{Name: HappenQueue, At: r.accepted, Took: at.run - r.accepted})
		e.happen(r, Happening{Name: HappenPolicy, At: at.plan, Took: at.run - at.plan,
			Note: e.policy})
	}
	if len(r.story.chunks) < mostChunks {
		r.story.chunks = append(r.story.chunks, HappeningChunk{at.run, tokens})
	}
	e.happen(r, Happening{Name: HappenChunk, At: at.run, Took: took, Tokens: tokens})
}

// tellPrefill tells of a whole prefill once it is through.
func (e *Engine) tellPrefill(r *request, until time.Duration) {
	e.happen(r, Happening{Name: HappenPrefill, At: r.story.begun, Took: until - r.story.begun,
		Tokens: len(r.ask.Prompt) - r.report.Cached, Chunks: r.story.chunks})
}

// tellTransfer tells of a transfer that ended.
func (e *Engine) tellTransfer(r *request, event transfer.Event) {
	note := strconv.FormatInt(event.Bytes, 10) + " bytes"
	if event.Err != nil {
		note = event.Err.Error()
	}
	now := e.Now()
	e.happen(r, Happening{Name: HappenTransfer, At: now - event.Elapsed, Took: event.Elapsed,
		Note: note})
}

// tellEnd tells how a request ended.
func (e *Engine) tellEnd(r *request, f *Finished) {
	if r.first > 0 {
		e.happen(r, Happening{Name: HappenDecode, At: r.first, Took: r.last - r.first,
			Tokens: f.OutputTokens})
	}
	note := f.Reason
	if f.Err != nil {
		note += ": " + f.Err.Error()
	}
	e.happen(r, Happening{Name: HappenFinished, At: e.Now(), Tokens: f.OutputTokens, Note: note})
}

// tellStep tells of a turn of the loop.
func (e *Engine) tellStep(plan *scheduler.Plan, at stages) {
	if e.options.Trace == nil {
		return
	}
	e.options.Trace(Happening{Name: HappenStep, At: at.plan, Took: at.end - at.plan,
		Tokens: plan.Decodes + plan.PrefillTokens})
}
