package router

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kvrelay/engine/host/placement"
)

// errSilent is why a call was given up whose instance has stopped answering anything.
var errSilent = errors.New("the instance keeps its connection open and answers nothing")

// mostSilences is how many questions in a row an instance may leave unanswered while it works for a
// request. To give up on it costs a computation: what was handed on stays.
const mostSilences = 2

// watching is an instance whose life is watched while it works for a request.
type watching struct {
	url      string
	role     placement.Role
	name     string
	silences int
}

// longCall is a call whose answer may take long.
type longCall struct {
	watching
	path     string
	body, to any
	header   http.Header
}

// postWatched makes a call to an instance that may take long, as long as it lives.
func (r *Router) postWatched(ctx context.Context, c longCall) error {
	watched, end := r.watched(ctx, c.watching)
	err := r.post(watched, c.url+c.path, c.body, c.to, c.header)
	if silent := end(); silent && err != nil {
		return errSilent
	}
	return err
}

// watched is ctx until the instance falls silent: beside whatever is asked of it, it is asked /live
// every ConnectTimeout. A process that was stopped, or a host that is cut off, closes no
// connection; without this a call would wait for the request's own time limit. end must be called;
// it reports whether the instance fell silent.
func (r *Router) watched(ctx context.Context, w watching,
) (watched context.Context, end func() (silent bool)) {
	watched, giveUp := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if r.fallsSilent(watched, w) {
			giveUp(errSilent)
		}
	}()
	return watched, func() bool {
		silent := context.Cause(watched) == errSilent
		giveUp(nil)
		<-ended
		return silent
	}
}

// fallsSilent asks an instance whether it lives until ctx ends (false), or until it has left so
// many questions in a row unanswered (true). With the first one it gets no new requests.
func (r *Router) fallsSilent(ctx context.Context, w watching) bool {
	for unanswered := 0; unanswered < w.silences; {
		if unanswered == 0 {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(r.options.ConnectTimeout):
			}
		}
		unanswered++
		lives := r.lives(ctx, w.url)
		if ctx.Err() != nil {
			return false
		}
		switch {
		case lives && unanswered > 1:
			_ = r.look(ctx, w.role, w.name) // What it finds is noted.
			unanswered = 0
		case lives:
			unanswered = 0
		case unanswered == 1:
			r.lose(w.role, w.name, errSilent)
		}
	}
	return true
}

// lives reports whether an instance answers /live in time, with whatever status.
func (r *Router) lives(ctx context.Context, instance string) bool {
	ctx, cancel := context.WithTimeout(ctx, r.options.ConnectTimeout)
	defer cancel()
	_, err := r.fetch(ctx, instance+"/live", maxAnswer)
	return err == nil || !unreachable(err) && ctx.Err() == nil
}
