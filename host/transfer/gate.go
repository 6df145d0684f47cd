package transfer

import (
	"slices"
	"sync"
	"time"
)

// gate bounds the transfers at once and the KV that may wait in memory for them. Who does not fit
// waits, first come first served.
type gate struct {
	mu       sync.Mutex // guards what follows
	most     int
	mostSize int64
	inside   int
	size     int64
	line     []*ticket
}

// ticket is a place in the gate's line; admitted is closed when its turn has come.
type ticket struct {
	size     int64
	inside   bool
	admitted chan struct{}
}

func (g *gate) enter(size int64) *ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &ticket{size: size, admitted: make(chan struct{})}
	g.line = append(g.line, t)
	g.admit()
	return t
}

// leave gives up the ticket, whether it was admitted or not.
func (g *gate) leave(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.inside {
		g.inside--
		g.size -= t.size
	} else {
		g.line = slices.DeleteFunc(g.line, func(other *ticket) bool { return other == t })
	}
	g.admit()
}

// admit lets in from the front of the line what fits. One alone always fits.
func (g *gate) admit() {
	for len(g.line) > 0 {
		t := g.line[0]
		if g.inside > 0 && (g.inside >= g.most || g.size+t.size > g.mostSize) {
			return
		}
		g.line = g.line[1:]
		g.inside++
		g.size += t.size
		t.inside = true
		close(t.admitted)
	}
}

// bucket spreads bytes over time: rate a second, 0 = as they come.
type bucket struct {
	rate int64
	free time.Duration // when everything let through so far has been paid for
}

// burst is how much time a bucket that was idle may make up for.
const burst = 20 * time.Millisecond

// take lets n bytes through. What was let through too early is a debt.
func (b *bucket) take(n int, now time.Duration) {
	if b.rate > 0 {
		cost := time.Duration(float64(n) / float64(b.rate) * float64(time.Second))
		b.free = max(b.free, now-burst) + cost
	}
}

// debt is how long to wait before anything more is let through.
func (b *bucket) debt(now time.Duration) time.Duration {
	if b.rate <= 0 {
		return 0
	}
	return max(0, b.free-now)
}

// set changes the rate; a debt of so many bytes stays one of so many bytes.
func (b *bucket) set(rate int64, now time.Duration) {
	debt := b.debt(now)
	if b.free = now; rate > 0 {
		b.free += time.Duration(float64(debt) * float64(b.rate) / float64(rate))
	}
	b.rate = rate
}
