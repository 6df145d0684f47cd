package engine

import (
	"context"
	"sync"

	"github.com/kvrelay/engine/host/generation"
)

// stream hands one request's output from the engine's goroutine to one reader. It holds at most the
// request's max tokens, so a slow reader never makes the engine wait.
type stream struct {
	stop    func()          // asks the engine to end the generation as stopped
	release func() bool     // ends the watch on the reader's context
	source  func() *request // on the loop's goroutine; nil when it has ended
	wake    chan struct{}

	mu      sync.Mutex
	pending generation.Update
	given   []int32 // the tokens of the last update, whose memory the next but one takes
	ended   bool
	err     error
}

func newStream() *stream { return &stream{wake: make(chan struct{}, 1)} }

// Next implements generation.Stream.
func (s *stream) Next(ctx context.Context) (generation.Update, error) {
	for {
		s.mu.Lock()
		ready := len(s.pending.Tokens) > 0 || s.ended
		update, err := s.pending, s.err
		if ready {
			s.pending.Tokens, s.given = s.given[:0], update.Tokens
			s.pending.Logprobs = nil
			if len(update.Tokens) > 0 && err != nil {
				err = nil // The tokens first; the error is still there for the next call.
			}
		}
		s.mu.Unlock()
		if ready {
			return update, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return generation.Update{}, ctx.Err()
		}
	}
}

// Stop implements generation.Stream.
func (s *stream) Stop() { s.stop() }

// push adds a token, with its log-probabilities if there are any, and brings the report up to date.
func (s *stream) push(report generation.Report, token int32, logprobs *generation.Logprobs) {
	s.mu.Lock()
	s.pending.Tokens = append(s.pending.Tokens, token)
	if logprobs != nil {
		s.pending.Logprobs = append(s.pending.Logprobs, *logprobs)
	}
	s.pending.Report = report
	s.mu.Unlock()
	s.signal()
}

// end closes the stream with a reason or an error. Later calls change nothing.
func (s *stream) end(report generation.Report, finish generation.Finish, err error) {
	s.mu.Lock()
	if !s.ended {
		s.ended, s.err = true, err
		s.pending.Finish, s.pending.Report = finish, report
	}
	s.mu.Unlock()
	s.release()
	s.signal()
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
