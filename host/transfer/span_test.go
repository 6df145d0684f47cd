package transfer

import (
	"testing"
	"time"
)

func TestSharesOfATransfer(t *testing.T) {
	var s span
	s.spent(10, 13)
	s.spent(20, 25)
	s.computed(30)
	s.computed(50) // A second word counts for nothing.
	s.spent(28, 36)
	s.spent(40, 44)
	if hidden, exposed := s.shares(60); hidden != 3+5+2 || exposed != 30 {
		t.Errorf("%d hidden, %d exposed", hidden, exposed)
	}
}

// What is sent while the caller has not sealed is hidden, what comes after is not. On a pipe in a
// bubble nothing takes time but the reader's waits.
func TestDoneTellsTheShares(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		out := w.open("a", 0, 30)
		time.Sleep(time.Second)
		w.send(out, 30)
		w.expect(append(openedBoth("a"), "receive delivered a", "send done a")...)
		for _, e := range w.events {
			if e.Kind == Done && (e.Hidden != 0 || e.Exposed != 0) {
				t.Errorf("%v hidden, %v exposed in no time", e.Hidden, e.Exposed)
			}
		}
	})
}
