package router

import (
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/placement"
)

// progress is whether requests get on: how many are under way, and when one last did.
type progress struct {
	requests atomic.Int64
	last     atomic.Int64 // nanoseconds since the router was made
}

// moving is how fresh an instance's last step must be to count as progress of what it has.
const moving = time.Second

// enter counts a request; leave must follow.
func (r *Router) enter() (leave func()) {
	if r.progress.requests.Add(1) == 1 {
		r.advanced()
	}
	return func() { r.progress.requests.Add(-1) }
}

// advanced notes that something of a request came: an answer, a token, or the word of an instance
// that it works.
func (r *Router) advanced() { r.progress.last.Store(int64(time.Since(r.made))) }

// Stalled is how long requests have been under way without any of them getting on; 0 when none is.
func (r *Router) Stalled() time.Duration {
	if r.progress.requests.Load() == 0 {
		return 0
	}
	return max(0, time.Since(r.made)-time.Duration(r.progress.last.Load()))
}

// works notes what an instance says of its own progress, if it has something of ours.
func (r *Router) works(role placement.Role, name string, stalled time.Duration) {
	if stalled >= moving {
		return
	}
	r.mu.Lock()
	all := r.pool.Snapshot()
	r.mu.Unlock()
	for _, i := range all {
		if i.Role == role && i.Name == name && i.InFlight > 0 {
			r.advanced()
		}
	}
}
