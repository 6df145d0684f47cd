package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/scheduler"
)

// maxPast bounds the requests that are remembered after their end, and maxExplained those of one
// name that are explained at once.
const (
	maxPast      = 512
	maxExplained = 16
)

// Explained is one request and what happened to it.
type Explained struct {
	// Number is the engine's own name of it, RequestID the one that its answer carries.
	Number    scheduler.SequenceID
	RequestID string
	// Finished sums it up: if it is Live as it stands now, without a reason.
	Finished
	Live  bool
	State scheduler.State
	// Cached prompt tokens were found at its first admission.
	Cached int
	// Moments are in the order in which they began, their times since it was accepted. Lost lines
	// are left out of their middle.
	Moments []scheduler.Moment
	Lost    int
}

// remembered is a request that has ended.
type remembered struct {
	id        scheduler.SequenceID
	requestID string
	accepted  time.Duration
	finished  Finished
}

// remember keeps a request that has ended, in the place of the oldest.
func (e *Engine) remember(r *request, f Finished) {
	if e.past == nil {
		e.past = make([]remembered, maxPast)
	}
	e.past[e.nextPast] = remembered{r.id, r.ask.RequestID, r.accepted, f}
	e.nextPast = (e.nextPast + 1) % maxPast
}

// Explain says what happened to the requests of a name: the id that their answers carry, the
// client's own label, or the engine's number. Those that ended longest ago are forgotten.
func (e *Engine) Explain(ctx context.Context, name string) ([]Explained, error) {
	return call(ctx, e, func() ([]Explained, error) {
		var found []Explained
		is := func(id scheduler.SequenceID, names ...string) bool {
			return name != "" && (slices.Contains(names, name) || fmt.Sprint(uint64(id)) == name)
		}
		for _, past := range e.past {
			if past.id > 0 && is(past.id, past.requestID, past.finished.ID) {
				x := Explained{Number: past.id, RequestID: past.requestID, Finished: past.finished,
					State: scheduler.Finished, Cached: past.finished.Report.Cached}
				found = append(found, e.tell(x, past.accepted))
			}
		}
		for id, r := range e.requests {
			if !is(id, r.ask.RequestID, r.ask.ID) {
				continue
			}
			x := Explained{Number: id, RequestID: r.ask.RequestID, Live: true,
				Finished: e.finished(r, "", nil)}
			if info, known := e.scheduler.Info(id); known {
				x.State, x.Cached = info.State, info.Cached
			}
			found = append(found, e.tell(x, r.accepted))
		}
		slices.SortFunc(found, func(a, b Explained) int { return cmp.Compare(b.Number, a.Number) })
		return found[:min(len(found), maxExplained)], nil
	})
}

// tell adds the story, its times since the request was accepted.
func (e *Engine) tell(x Explained, accepted time.Duration) Explained {
	x.Moments, x.Lost, _ = e.scheduler.Story(x.Number)
	for i := range x.Moments {
		m := &x.Moments[i]
		m.From, m.To = max(m.From-accepted, 0), max(m.To-accepted, 0)
	}
	return x
}
