package engine

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// progress is what others may know of the loop at any time, also while a step hangs.
type progress struct {
	since atomic.Int64 // when something last ran, or nothing was left to do
	work  atomic.Bool  // something waits or runs
}

// Stalled is how long work has been there without anything having run; 0 when nothing waits. It
// asks nothing of the loop, which may be the one that hangs.
func (e *Engine) Stalled() time.Duration {
	if !e.progress.work.Load() && e.inbox.empty() {
		return 0
	}
	return max(0, e.Now()-time.Duration(e.progress.since.Load()))
}

// advanced notes that something ran, or that there is nothing to do.
func (e *Engine) advanced() { e.progress.since.Store(int64(e.Now())) }

// note brings what others may know up to date before a step.
func (e *Engine) note() {
	work := e.scheduler.Work()
	if before := e.progress.work.Swap(work); !before || !work {
		e.advanced()
	}
}

// lookEvery is how often the queue is searched for those that waited too long.
const lookEvery = 50 * time.Millisecond

// expireWaiting ends the requests that have waited longer than QueueTimeout for their first pages,
// and remote sends that have waited so long for more. Others who hold pages, or had them and lost
// them, go on. A send cannot wait for ever with what it has: what it waits for may be held by
// reservations that wait for it, here or on other instances, and nobody sees the whole circle.
func (e *Engine) expireWaiting() {
	now, most := e.Now(), e.options.QueueTimeout
	if most <= 0 || now-e.looked < lookEvery {
		return
	}
	e.looked = now
	var late []*request
	for id, r := range e.requests {
		if now-r.accepted < most || r.started {
			continue
		}
		info, known := e.scheduler.Info(id)
		first := info.State == scheduler.Waiting && info.Preempted == 0 && r.report.Chunks == 0
		more := r.send != nil && info.State == scheduler.Prefilling && now-info.LastRun >= most
		if known && (first || more) {
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *request) int { return cmp.Compare(a.id, b.id) })
	for _, r := range late {
		e.drop(r, generation.Errorf(generation.CodeQueueTimeout, "the request has waited %v, "+
			"longer than scheduler.queue_timeout allows: the instance has more to do than it "+
			"can; try again later", (now-r.accepted).Round(time.Millisecond)))
	}
}

// drainTime estimates how long the queue takes to become empty, from how often requests ended
// lately; for the word when to try again.
func (e *Engine) drainTime() time.Duration {
	const least, most = time.Second, time.Minute
	waiting := e.scheduler.Stats().States[scheduler.Waiting]
	return min(most, max(least, time.Duration(waiting)*e.pace))
}

// paceWeight is the part that a new interval has in the mean of them.
const paceWeight = 8

// paced notes that a request ended.
func (e *Engine) paced() {
	now := e.Now()
	if e.ended > 0 {
		e.pace += (now - e.ended - e.pace) / paceWeight
	}
	e.ended = now
}

// Drain makes the engine refuse what another instance could do as well: reservations, remote sends
// and starts that nothing was prepared for. What is under way goes on, its starts included. Local
// generations are refused by whoever serves them: only there is known what belongs to a request
// that is under way.
func (e *Engine) Drain(ctx context.Context, draining bool) error {
	_, err := call(ctx, e, func() (struct{}, error) {
		e.drain(draining)
		return struct{}{}, nil
	})
	return err
}

func (e *Engine) drain(draining bool) {
	e.draining = draining
	e.scheduler.SetDraining(draining)
}

// refuseDraining is the answer to what comes while the engine drains.
func (e *Engine) refuseDraining() error {
	if !e.draining {
		return nil
	}
	return generation.Errorf(generation.CodeDraining,
		"the instance is draining: it finishes what it has and takes nothing new")
}
