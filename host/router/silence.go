package router

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// errSilent is why a call was given up whose instance has stopped answering anything.
var errSilent = errors.New("the instance keeps its connection open and answers nothing")

// silences is how many questions in a row an instance may leave unanswered during a call.
const silences = 2

// longCall is a call whose answer may take long.
type longCall struct {
	instance, path string
	body, to       any
	header         http.Header
}

// postWatched makes a call to an instance that may take long, as long as it lives: beside the call
// it is asked /live every ConnectTimeout. A process that was stopped, or a host that is cut off,
// closes no connection; without this the call would wait for the request's own time limit.
func (r *Router) postWatched(ctx context.Context, c longCall) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.awaitSilence(ctx, c.instance, giveUp)
	}()
	err := r.post(ctx, c.instance+c.path, c.body, c.to, c.header)
	silent := context.Cause(ctx) == errSilent
	giveUp(nil)
	<-ended
	if err != nil && silent {
		return errSilent
	}
	return err
}

// awaitSilence asks an instance whether it lives until ctx ends, and gives up on one that does not
// answer twice.
func (r *Router) awaitSilence(
	ctx context.Context, instance string, giveUp context.CancelCauseFunc,
) {
	for unanswered := 0; unanswered < silences; {
		if unanswered == 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(r.options.ConnectTimeout):
			}
		}
		unanswered++
		if r.lives(ctx, instance) {
			unanswered = 0
		}
		if ctx.Err() != nil {
			return
		}
	}
	giveUp(errSilent)
}

// lives reports whether an instance answers /live in time, with whatever status.
func (r *Router) lives(ctx context.Context, instance string) bool {
	ctx, cancel := context.WithTimeout(ctx, r.options.ConnectTimeout)
	defer cancel()
	_, err := r.fetch(ctx, instance+"/live", maxAnswer)
	return err == nil || !unreachable(err) && ctx.Err() == nil
}
