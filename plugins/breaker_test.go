package plugins

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	var b breaker
	for i := range 10 { // Two a minute are borne for ever.
		if b.fault(time.Duration(i) * 31 * time.Second) {
			t.Fatalf("fault %d sets it aside", i)
		}
	}
	now := 600 * time.Second
	for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		now = max(now, b.until) + time.Millisecond
		if opened := b.fault(now); opened != (want > 0) || b.pause != want*time.Second {
			t.Fatalf("fault %d: %v, set aside for %v, want %v s", i, opened, b.pause, want)
		}
		if !opened(b, now, want) {
			t.Fatalf("fault %d: until %v at %v", i, b.until, now)
		}
	}
	for range breakerClean - 1 {
		b.ok()
	}
	if b.pause == 0 {
		t.Fatal("trusted too early")
	}
	b.ok()
	if b != (breaker{}) {
		t.Fatalf("not trusted again: %+v", b)
	}
}

// opened checks that a breaker allows nothing until the pause is over, and everything then.
func opened(b breaker, now, seconds time.Duration) bool {
	end := now + seconds*time.Second
	return b.allows(end) && (seconds == 0 || !b.allows(end-1))
}
