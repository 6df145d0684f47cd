package plugins

import (
	"runtime"
	"time"
)

// Stage is how far a module is trusted.
type Stage string

// The stages of the circuit breaker.
const (
	Closed   Stage = "closed"    // it decides
	HalfOpen Stage = "half_open" // it decides, is judged, and somebody else acts
	Open     Stage = "open"      // it is not asked
)

// breaker counts the faults of a module. It is pure: the time is the engine's, from the header.
type breaker struct {
	recent []time.Duration // of the latest faults, in a ring
	faults int             // since it was trusted last
	until  time.Duration   // not asked until then
	pause  time.Duration   // how long it was set aside last; 0: it is trusted
	clean  int             // steps since the last fault, in probation
}

// stage says how far the module is trusted now.
func (b *breaker) stage(now time.Duration) Stage {
	switch {
	case b.pause == 0:
		return Closed
	case now < b.until:
		return Open
	}
	return HalfOpen
}

// ok counts a clean step, and says whether it ended the probation.
func (b *breaker) ok(r *Rules) bool {
	if b.pause == 0 {
		return false
	}
	b.clean++
	if b.clean < r.CleanSteps {
		return false
	}
	*b = breaker{}
	return true
}

// fault counts a fault and says whether it sets the module aside. A grave one does, and so does any
// in probation.
func (b *breaker) fault(now time.Duration, r *Rules, grave bool) bool {
	if len(b.recent) != r.Faults {
		b.recent, b.faults = make([]time.Duration, r.Faults), 0
	}
	b.clean = 0
	b.recent[b.faults%r.Faults] = now
	b.faults++
	oldest := b.recent[b.faults%r.Faults] // of the latest r.Faults
	many := b.faults >= r.Faults && now-oldest <= r.Window
	if !many && !grave && b.pause == 0 {
		return false
	}
	b.pause = min(max(2*b.pause, r.Backoff), r.BackoffMax)
	b.until = now + b.pause
	return true
}

// What pace takes for slow.
const (
	paceWindow = 256 // calls of which the 99th percentile is taken
	paceStuck  = 32  // calls in a row …
	paceTimes  = 10  // … that take so many times the soft limit are a fault
)

// pace watches how long the calls of a module take. Time by the wall is what it can have for
// nothing; but on a machine with more to do than processors it says more of the others. So it only
// makes a suspect, whose next calls are measured by the time that their thread had a processor, at
// a microsecond's cost. What is measured is judged.
type pace struct {
	calls, over int  // of the current window
	stuck       int  // measured calls in a row that are far too slow
	suspect     bool // the calls are to be measured
}

// took counts a call. It says whether the window that it ends was slow, and whether the module has
// been far too slow for long enough to set it aside: what was not measured is neither.
func (p *pace) took(took, soft time.Duration, measured bool) (slow, stuck bool) {
	far := took > paceTimes*soft
	if far && !measured {
		*p = pace{suspect: true}
		return false, false
	}
	p.calls++
	if took > soft {
		p.over++
	}
	p.stuck++
	if !far {
		p.stuck = 0
	}
	if p.stuck >= paceStuck {
		*p = pace{}
		return false, true
	}
	if p.calls < paceWindow {
		return false, false
	}
	over := 100*p.over > p.calls
	p.calls, p.over, p.suspect = 0, 0, over || p.stuck > 0
	return over && measured, false
}

// watch measures one call.
type watch struct {
	begin    time.Time
	thread   time.Duration
	measured bool // by what the thread had of a processor
}

// watch begins to measure a call, which the same goroutine must end.
func (p *pace) watch() watch {
	w := watch{measured: p.suspect && threadTimed}
	if w.measured {
		runtime.LockOSThread()
		w.thread = threadTime()
	}
	w.begin = time.Now()
	return w
}

// end returns how long the call took by the wall, and for whoever judges it.
func (w *watch) end() (wall, judged time.Duration) {
	wall = time.Since(w.begin)
	if !w.measured {
		return wall, wall
	}
	judged = threadTime() - w.thread
	runtime.UnlockOSThread()
	return wall, judged
}
