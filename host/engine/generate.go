package engine

import (
	"context"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// call runs f on the loop's goroutine and waits for what it returns. Calls on their way in are
// bounded; beyond that they are refused at once.
func call[T any](ctx context.Context, e *Engine, f func() (T, error)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	refused := e.enqueue(func() {
		defer close(done)
		if ctx.Err() != nil {
			err = cancelled() // Nobody is waiting: nothing is begun.
			return
		}
		value, err = f()
	})
	if refused != nil {
		return value, refused
	}
	select {
	case <-done:
		return value, err
	case <-e.stopped:
		return value, stopping()
	}
}

// enqueue puts a call into the inbox, or says why it cannot.
func (e *Engine) enqueue(f func()) error {
	if err := e.admission.enter(); err != nil {
		return err
	}
	put := e.inbox.put(func() {
		defer e.admission.leave()
		f()
	})
	if !put {
		e.admission.leave()
		return stopping()
	}
	return nil
}

func stopping() *generation.Error {
	return generation.Errorf(generation.CodeDraining, "the engine is shutting down")
}

// Generate implements generation.Source.
func (e *Engine) Generate(ctx context.Context, ask generation.Request) (generation.Stream, error) {
	return call(ctx, e, func() (generation.Stream, error) {
		r, err := e.submit(scheduler.Local, ask, 0, 0)
		if err != nil {
			return nil, err
		}
		return e.open(ctx, r), nil
	})
}

// open gives a request its stream. When ctx ends, so does the generation.
func (e *Engine) open(ctx context.Context, r *request) *stream {
	s := newStream()
	id := r.id
	s.source = func() *request { return e.requests[id] }
	quit := func() { e.inbox.put(func() { e.drop(s.source(), cancelled()) }) }
	s.stop = func() { e.inbox.put(func() { e.stopRequest(e.requests[id]) }) }
	s.release = context.AfterFunc(ctx, quit)
	r.stream = s
	return s
}

// stopRequest ends a generation whose reader has enough; its pages stay in the prefix cache.
func (e *Engine) stopRequest(r *request) {
	if r == nil {
		return
	}
	if e.scheduler.Finish(r.id, scheduler.ReasonStop) != nil {
		e.drop(r, cancelled()) // Not decoding: there is nothing worth keeping.
		return
	}
	e.end(r, generation.FinishStop, nil)
}

// Reset forgets the prefix cache, pinned prompts included.
func (e *Engine) Reset(ctx context.Context) error {
	_, err := call(ctx, e, func() (struct{}, error) {
		e.scheduler.Reset()
		return struct{}{}, nil
	})
	return err
}

// SetLimits changes the scheduler's numbers between two steps, and how many requests may be on
// their way in.
func (e *Engine) SetLimits(ctx context.Context, l scheduler.Limits) error {
	_, err := call(ctx, e, func() (struct{}, error) {
		return struct{}{}, e.scheduler.SetLimits(l)
	})
	if err == nil {
		e.admission.most.Store(int64(l.MaxQueue + l.MaxSeqs))
	}
	return err
}

// Stats returns the scheduler's gauges and counters and the pages without an owner, which must be
// 0.
func (e *Engine) Stats(ctx context.Context) (scheduler.Stats, int, error) {
	type both struct {
		stats  scheduler.Stats
		leaked int
	}
	b, err := call(ctx, e, func() (both, error) {
		return both{e.scheduler.Stats(), e.scheduler.Leaked()}, nil
	})
	return b.stats, b.leaked, err
}
