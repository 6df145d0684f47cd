package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/scheduler"
)

// maxListed bounds the requests that one State lists.
const maxListed = 256

// State is what the engine does at one moment, for people.
type State struct {
	Stats  scheduler.Stats
	Leaked int
	// Requests are those that run, then those that wait, oldest first; at most 256. Total counts
	// all.
	Requests []RequestState
	Total    int
}

// RequestState is one request in a State.
type RequestState struct {
	scheduler.Info
	// Number is the engine's own, Label the client's.
	Number        scheduler.SequenceID
	Label, Tenant string
	Priority      int32
	Age           time.Duration
}

// State lists what is there between two steps.
func (e *Engine) State(ctx context.Context) (State, error) {
	return call(ctx, e, func() (State, error) {
		s := State{Stats: e.scheduler.Stats(), Leaked: e.scheduler.Leaked(),
			Total: len(e.requests)}
		now := e.Now()
		for id, r := range e.requests {
			info, known := e.scheduler.Info(id)
			if !known {
				continue
			}
			s.Requests = append(s.Requests, RequestState{Info: info, Number: id, Label: r.ask.ID,
				Tenant: r.ask.Hints.Tenant, Priority: r.ask.Hints.Priority, Age: now - r.accepted})
		}
		slices.SortFunc(s.Requests, func(a, b RequestState) int {
			return cmp.Or(cmp.Compare(waits(a), waits(b)), cmp.Compare(a.Number, b.Number))
		})
		s.Requests = s.Requests[:min(len(s.Requests), maxListed)]
		return s, nil
	})
}

// waits orders requests that run before those that do not.
func waits(r RequestState) int {
	if r.State == scheduler.Waiting {
		return 1
	}
	return 0
}
