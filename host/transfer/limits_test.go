package transfer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMaxRate(t *testing.T) {
	rate := func(_ *ReceiverOptions, so *SenderOptions) { so.MaxRate = 1000 }
	inBubble(t, rate, func(t *testing.T, w *wiring) {
		began := time.Now()
		out := w.open("a", 0, 80)
		w.await(2)
		w.send(out, 80) // 80 slots of 8 bytes in 3 layers
		w.await(4)
		took := time.Since(began)
		sent := float64(w.wire()) / 1000
		if took.Seconds() < sent-0.1 || took.Seconds() > sent+0.2 {
			t.Errorf("%.0f bytes took %v at 1,000 bytes a second", 1000*sent, took)
		}
		w.expect(append(openedBoth("a"), "receive delivered a", "send done a")...)
	})
}

// wire is the bytes that the last transfer to end has sent.
func (w *wiring) wire() (n int64) {
	for _, e := range w.events {
		if e.Direction == Sending && e.Kind == Done {
			n = e.Wire
		}
	}
	return n
}

// A rate changed under way counts from then on.
func TestSetRate(t *testing.T) {
	rate := func(_ *ReceiverOptions, so *SenderOptions) { so.MaxRate = 100 }
	inBubble(t, rate, func(t *testing.T, w *wiring) {
		out := w.open("a", 0, 80)
		w.await(2)
		w.send(out, 80)
		time.Sleep(time.Second)
		began := time.Now()
		w.sender.SetRate(0)
		w.await(4)
		if took := time.Since(began); took > time.Second {
			t.Errorf("still slow: %v", took)
		}
	})
}

// A crawling rate, shared by many, is no failure: each is heard of within the timeout.
func TestLowRateSharedIsNoFailure(t *testing.T) {
	low := func(_ *ReceiverOptions, so *SenderOptions) { so.MaxRate = 2000 }
	inBubble(t, low, func(t *testing.T, w *wiring) {
		var want []string
		var outs []*Outgoing
		for i := range 6 {
			id := fmt.Sprint(i)
			out := w.open(id, 20*i, 20)
			want = append(want, openedBoth(id)...)
			want = append(want, "receive delivered "+id, "send done "+id)
			w.await(2 * (i + 1))
			outs = append(outs, out)
		}
		for _, out := range outs {
			w.send(out, 20)
		}
		w.await(len(want))
		w.expect(want...)
	})
}

func TestMaxInflightWaits(t *testing.T) {
	one := func(_ *ReceiverOptions, so *SenderOptions) { so.MaxInflight = 1 }
	inBubble(t, one, func(t *testing.T, w *wiring) {
		a := w.open("a", 0, 4)
		b := w.open("b", 8, 4)
		c := w.open("c", 16, 4)
		w.expect(openedBoth("a")...)
		b.Cancel()
		synctest.Wait()
		w.expect(append(openedBoth("a"), "send failed b cancelled")...)
		w.send(a, 4)
		w.send(c, 4)
		w.expect(slices.Concat(openedBoth("a"), openedBoth("c"), []string{
			"send failed b cancelled", "receive delivered a", "send done a",
			"receive delivered c", "send done c",
		})...)
	})
}

// KV that would not fit beside that of the transfers under way waits outside, however many may run.
func TestMaxBufferedWaits(t *testing.T) {
	small := func(_ *ReceiverOptions, so *SenderOptions) { so.MaxBuffered = 100 }
	inBubble(t, small, func(t *testing.T, w *wiring) {
		a := w.open("a", 0, 5) // 120 bytes: more than fits, but alone
		b := w.open("b", 8, 3)
		w.expect(openedBoth("a")...)
		w.send(a, 5)
		w.send(b, 3)
		if n := len(w.told()); n != 8 {
			t.Errorf("%q", w.told())
		}
	})
}
