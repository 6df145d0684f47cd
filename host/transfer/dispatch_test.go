package transfer

import (
	"math/rand/v2"
	"testing"
	"time"
)

// pure is a Dispatch and the Inbound it talks to, joined by two queues of frames.
type pure struct {
	*pair
	d *Dispatch
}

func newPure(t *testing.T, seed uint64, w Window) *pure {
	p := newPair(t, seed, smallShape, w)
	pagesOf(p.from).late = seed%2 == 0
	u := &pure{pair: p, d: NewDispatch("out", retry(p), []Model{p.from}, DefaultTimeout)}
	u.in = u.ledger.Connect(0)
	u.d.Start(0)
	return u
}

// run carries all that either side has to say, and says whether anything moved.
func (u *pure) run() (moved bool) {
	for frame := u.d.Next(u.now); frame != nil; frame = u.d.Next(u.now) {
		u.in.Take(frame, u.now)
		moved = true
	}
	if said := u.in.Output(); len(said) > 0 {
		u.d.Take(said, u.now)
		u.in.Written(len(said))
		moved = true
	}
	u.events = append(u.events, u.ledger.Events()...)
	u.events = append(u.events, u.d.Events()...)
	return moved
}

func TestDispatchDelivers(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 9))
		u := newPure(t, seed, Window{Begin: r.IntN(5), End: 20})
		u.d.SetFrame(1 + r.IntN(60))
		if err := u.d.Send(0, 0, 20, u.pages, 0); err != errNotOpen {
			t.Fatalf("seed %d: sent before it was opened: %v", seed, err)
		}
		for u.run() {
		}
		for at := u.window.Begin; at < 20; {
			at = min(20, at+1+r.IntN(9))
			for layer := range smallShape.layers {
				if err := u.d.Send(0, layer, at, u.pages, u.now); err != nil {
					t.Fatal(err)
				}
			}
			u.d.SealChunk(at)
			u.now += time.Millisecond
			u.run()
		}
		u.d.SealAll()
		for u.run() {
		}
		u.expect(delivered...)
		u.sameKV(t, u.window.Begin, u.pages, u.slots)
		if !u.d.Over() || u.d.Queued() != 0 {
			t.Fatalf("seed %d: %d wait after the end", seed, u.d.Queued())
		}
	}
}

func TestDispatchTellsUnreadablePages(t *testing.T) {
	testUnreadable(t, 2)
	testUnreadable(t, 3)
}

func testUnreadable(t *testing.T, seed uint64) {
	u := newPure(t, seed, Window{End: 20})
	for u.run() {
	}
	pagesOf(u.from).failReadsOfLayer = 1
	if err := u.d.Send(0, 0, 20, u.pages, 0); err != nil {
		t.Fatal(err)
	}
	if err := u.d.Send(0, 1, 20, u.pages, 0); err == nil && seed%2 == 1 {
		t.Fatal("unreadable pages were sent")
	}
	for u.run() {
	}
	u.d.Closed(&Error{Reason: Reset}, 0)
	u.in.Closed(0)
	u.run()
	u.expect(append([]string{"receive failed page fault", "send failed page fault"}, opened...)...)
	if err := u.d.Send(0, 2, 20, u.pages, 0); err == nil {
		t.Fatal("sent after the end")
	}
}
