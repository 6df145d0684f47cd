package engine

import (
	"sync"
	"time"
)

// inbox carries what others want of the engine to its goroutine, in order. Each entry runs there.
// It is bounded by those who put: requests by the admission count, transfer events by
// max_inflight and the leases, cancellations by the requests.
type inbox struct {
	wake chan struct{} // holds one token while there may be entries

	mu      sync.Mutex
	entries []func()
	closed  bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put appends an entry; false after close, when nothing will run it.
func (b *inbox) put(entry func()) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.entries = append(b.entries, entry)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// run runs all entries, those put meanwhile too, and reports whether there were any.
func (b *inbox) run() bool {
	ran := false
	for {
		b.mu.Lock()
		entries := b.entries
		b.entries = nil
		b.mu.Unlock()
		if len(entries) == 0 {
			return ran
		}
		ran = true
		for _, entry := range entries {
			entry()
		}
	}
}

// wait blocks until an entry is put, done is closed, or the time is up.
func (b *inbox) wait(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-b.wake:
	case <-done:
	case <-timer.C:
	}
}

// empty reports whether no entry waits.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) == 0
}

// close refuses further entries; those inside may still be run.
func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
}
