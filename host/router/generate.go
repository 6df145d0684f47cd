package router

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/kvrelay/engine/host/generation"
)

// Generate implements generation.Source. It returns at once; refusals come with the first Next.
func (r *Router) Generate(
	reader context.Context, ask generation.Request,
) (generation.Stream, error) {
	ctx, cancel := context.WithCancel(reader)
	s := &stream{updates: make(chan result, 16), cancel: cancel}
	f := &forward{router: r, ask: ask, out: s, reader: reader, id: "router-" + randomHex(),
		accepted: time.Now()}
	go func() {
		select {
		case <-r.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer cancel()
		defer close(s.updates)
		defer r.enter()()
		if err := f.run(ctx); err != nil {
			s.send(reader, result{err: r.orClosing(err)})
		}
	}()
	return s, nil
}

// orClosing is the error of a request: what went wrong, or that the router is shutting down.
func (r *Router) orClosing(err error) error {
	select {
	case <-r.closing:
		return generation.Errorf(generation.CodeDraining, "the router is shutting down")
	default:
		return err
	}
}

func randomHex() string {
	var b [12]byte
	rand.Read(b[:]) // It never fails.
	return hex.EncodeToString(b[:])
}

// stream hands updates from the goroutine that drives the instances to the reader.
type stream struct {
	updates chan result
	cancel  context.CancelFunc
}

type result struct {
	update generation.Update
	err    error
}

// Next implements generation.Stream.
func (s *stream) Next(ctx context.Context) (generation.Update, error) {
	select {
	case r, more := <-s.updates:
		if !more {
			return generation.Update{}, context.Canceled
		}
		return r.update, r.err
	case <-ctx.Done():
		s.cancel()
		return generation.Update{}, ctx.Err()
	}
}

// Stop implements generation.Stream.
func (s *stream) Stop() { s.cancel() }

// send waits for the reader; a reader that is gone ends ctx.
func (s *stream) send(ctx context.Context, r result) {
	select {
	case s.updates <- r:
	case <-ctx.Done():
	}
}
