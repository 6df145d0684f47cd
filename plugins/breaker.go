package plugins

import "time"

// When a module is set aside, and for how long. Between the two lies the built-in policy.
const (
	breakerFaults = 3                // so many faults …
	breakerWindow = 60 * time.Second // … in this time set it aside …
	breakerFirst  = time.Second      // … for so long, twice as long each time after that …
	breakerMost   = 5 * time.Minute  // … up to this.
	breakerClean  = 200              // clean steps after which it is trusted as at first
)

// breaker counts the faults of a module. It is pure: the time is the engine's, from the header.
type breaker struct {
	recent [breakerFaults]time.Duration // of the latest faults
	faults int                          // since it was trusted last
	until  time.Duration                // set aside until then
	pause  time.Duration                // how long it was set aside last, 0 if never
	clean  int                          // steps since the last fault
}

// allows says whether the module may be asked.
func (b *breaker) allows(now time.Duration) bool { return now >= b.until }

// ok counts a clean step.
func (b *breaker) ok() {
	if b.faults == 0 {
		return
	}
	b.clean++
	if b.clean >= breakerClean && b.pause > 0 {
		*b = breaker{}
	}
}

// fault counts a fault and says whether it sets the module aside. After it was set aside once, a
// single fault suffices until it is trusted again.
func (b *breaker) fault(now time.Duration) bool {
	b.clean = 0
	b.recent[b.faults%breakerFaults] = now
	b.faults++
	oldest := b.recent[b.faults%breakerFaults] // of the latest breakerFaults
	many := b.faults >= breakerFaults && now-oldest <= breakerWindow
	if !many && b.pause == 0 {
		return false
	}
	b.pause = min(max(2*b.pause, breakerFirst), breakerMost)
	b.until = now + b.pause
	return true
}
