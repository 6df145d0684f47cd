package transfer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	opened    = []string{"receive opened", "send opened"}
	delivered = append(opened, "receive delivered", "send done")
)

func TestDelivers(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := shape{
			layers: 1 + r.IntN(4), pages: 40, pageSize: 1 + r.IntN(9),
			slotBytes: 2 * (1 + r.IntN(8)),
		}
		end := r.IntN(12 * s.pageSize)
		w := Window{Begin: r.IntN(end + 1), End: end}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := newPair(t, seed, s, w)
			for at := w.Begin; at < w.End; {
				at = min(w.End, at+1+r.IntN(1+w.Len()))
				p.send(at)
				if at < w.End && r.IntN(2) == 0 {
					p.seal(at)
				}
				p.move(r.IntN(200))
			}
			p.seal(w.End)
			p.settle()
			p.expect(delivered...)
			p.sameKV(t, w.Begin, p.pages, p.slots)
			last := p.events[len(p.events)-1]
			if want := int64(w.Len() * s.layers * s.slotBytes); last.Bytes != want {
				t.Fatalf("%d bytes counted, %d are in the window", last.Bytes, want)
			}
			if c := p.ledger.Counts(); c.Sealed != 1 {
				t.Fatalf("leases: %+v", c)
			}
			p.ledger.Release("lease")
			p.noLeak()
		})
	}
}

// Pages may be cut differently at the two ends, and positions may be left out.
func TestDeliversToAnySlots(t *testing.T) {
	for seed := range uint64(100) {
		p := newPair(t, seed, smallShape, Window{Begin: 3, End: 60})
		p.ledger.Release("lease")
		order := p.rand.Perm(smallShape.pages * smallShape.pageSize)
		for i := range p.slots {
			p.slots[i] = order[i]
			if p.rand.IntN(3) > 0 && i > 0 && p.slots[i-1] >= 0 {
				p.slots[i] = p.slots[i-1] + 1
			}
		}
		p.slots = distinct(p.slots, smallShape.pages*smallShape.pageSize)
		for range p.rand.IntN(3) {
			at := p.rand.IntN(50)
			for i := range p.rand.IntN(7) {
				p.slots[at+i] = skipped
			}
		}
		p.connect(p.grant("lease"))
		p.send(20)
		p.seal(20)
		p.send(60)
		p.seal(60)
		p.settle()
		p.expect(delivered...)
		p.sameKV(t, p.window.Begin, p.pages, p.slots)
	}
}

// distinct replaces slots that are named twice, or do not exist, by unused ones.
func distinct(slots []int, total int) []int {
	used := map[int]bool{}
	free := 0
	for i, s := range slots {
		for used[s] || s >= total {
			s = free
			free++
		}
		used[s], slots[i] = true, s
	}
	return slots
}

// A chunk may end before the window begins, or be computed twice after a preemption.
func TestSealsThatSayNothingNew(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{Begin: 5, End: 10})
	for _, end := range []int{3, 5, 8, 4, 8, 10} {
		p.send(end)
		p.seal(end)
	}
	p.settle()
	p.expect(delivered...)
}

func TestHeartbeatsKeepAnIdleTransfer(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{End: 10})
	p.move(1 << 20)
	for range 1000 {
		p.now += DefaultTimeout / 8
		p.tick()
		p.move(1 << 20)
	}
	p.send(10)
	p.seal(10)
	p.settle()
	p.expect(delivered...)
}

// A link that moves fifty bytes a second makes progress and is no failure.
func TestSlowLinkIsNoFailure(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{End: 10})
	p.move(1 << 20)
	p.send(10)
	p.seal(10)
	for i := 0; !p.out.Over(); i++ {
		if i > 10000 {
			t.Fatal("never ends")
		}
		p.now += time.Second
		p.move(50)
		p.tick()
	}
	p.expect(delivered...)
}

func TestSilentPeerTimesOut(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{End: 10})
	p.move(1 << 20)
	p.send(10)
	p.move(100)
	began := p.now
	for !p.in.Over() || !p.out.Over() { // No byte moves any more.
		p.now = min(p.in.Deadline(), p.out.Deadline())
		if p.out.Over() {
			p.now = p.in.Deadline()
		}
		p.tick()
	}
	p.expect(append(opened, "receive failed timeout", "send failed timeout")...)
	if took := p.now - began; took > DefaultTimeout+time.Second {
		t.Fatalf("noticed and fenced after %v", took)
	}
	if !mustRelease(p, "lease") {
		t.Fatal("the writer is closed, so its pages are free")
	}
	p.noLeak()
}

func mustRelease(p *pair, id string) bool {
	_, fenced := p.ledger.Release(id)
	return fenced
}

func TestResetAnywhereFreesTheLeaseForAnother(t *testing.T) {
	whole := 0
	for stop := 0; whole == 0 || stop <= whole; stop += 7 {
		p := newPair(t, 5, smallShape, Window{Begin: 2, End: 9})
		p.send(5)
		p.seal(5)
		p.send(9)
		p.seal(9)
		moved := 0
		for moved < stop && !p.out.Over() {
			p.move(1)
			moved++
		}
		p.hangUp()
		if p.ledger.Counts().Sealed == 1 {
			whole = moved
			continue
		}
		p.events = nil
		clear(pagesOf(p.to).writes)
		resumed := p.ledger.leases[0].from
		p.connect(retry(p))
		p.move(1 << 20)
		if p.out.From() != resumed {
			t.Fatalf("resumes at %d, sealed below %d", p.out.From(), resumed)
		}
		p.pack = newPacker(retry(p), []Model{p.from}, p.out.From(), p.pack.room)
		p.send(9)
		p.seal(9)
		p.settle()
		p.expect(delivered...)
		p.sameKV(t, resumed, p.pages, p.slots[resumed-2:])
	}
}

// retry is the metadata of the lease once more, as another prefill instance was given it.
func retry(p *pair) *Metadata {
	g := p.ledger.byID["lease"]
	flat := flatten(g.layouts[0].segments)
	text, err := p.ledger.key.sign(letter{
		Version: 1, Address: "127.0.0.1:7601", Lease: g.id, Token: fmt.Sprintf("%x", g.token[:]),
		Epoch: g.epoch, Compat: p.ledger.compat, Models: [][]int{flat},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	m, bad := parseMetadata(text, p.window, 1)
	if bad != nil {
		p.t.Fatal(bad)
	}
	return m
}

// Cancel from either side after every single byte: nothing hangs, nothing leaks, nothing is
// written after the lease was withdrawn, and a transfer that was delivered stays so.
func TestCancelAnywhere(t *testing.T) {
	for _, side := range []string{"sender", "receiver", "both"} {
		for stop, over := 0, false; !over; stop++ {
			p := newPair(t, 7, smallShape, Window{End: 6})
			p.send(6)
			p.seal(6)
			for range stop {
				p.move(1)
			}
			over = p.out.Over()
			fenced := true
			if side != "sender" {
				var epoch uint64
				if epoch, fenced = p.ledger.Release("lease"); !fenced && epoch == p.in.Epoch() {
					p.in.Withdraw(p.now)
				}
			}
			writes := pagesOf(p.to).writeCalls
			if side != "receiver" {
				p.out.GiveUp(fault(Cancelled, "test"), p.now)
			}
			p.settle()
			if side != "sender" && pagesOf(p.to).writeCalls != writes {
				t.Fatalf("%s, after %d bytes: written after the release", side, stop)
			}
			told := strings.Join(p.told(), ",")
			if (side != "sender") && strings.Contains(told, "fenced") == fenced {
				t.Fatalf("%s, after %d bytes: fenced=%v: %s", side, stop, fenced, told)
			}
			if n := strings.Count(told, "send failed") + strings.Count(told, "send done"); n != 1 {
				t.Fatalf("%s, after %d bytes: %d ends: %s", side, stop, n, told)
			}
			p.ledger.Release("lease")
			p.noLeak()
		}
	}
}

// A released lease with a live writer is in quarantine until the writer said so or was cut.
func TestQuarantineUntilFenced(t *testing.T) {
	for _, how := range []string{"acknowledged", "cut", "silent"} {
		p := newPair(t, 3, smallShape, Window{End: 10})
		p.move(1 << 20)
		p.send(5)
		p.move(200)
		if mustRelease(p, "lease") {
			t.Fatal("fenced with a live writer")
		}
		p.in.Withdraw(p.now)
		if c := p.ledger.Counts(); c.Quarantined != 1 {
			t.Fatalf("leases: %+v", c)
		}
		again := Reservation{Window: p.window, Segments: [][]Segment{Compress(p.slots)}}
		if _, err := p.ledger.Grant("lease", again, 0); err == nil {
			t.Fatal("granted again while in quarantine")
		}
		switch how {
		case "acknowledged":
			p.move(1 << 20)
			p.move(1 << 20)
		case "cut":
			p.hangUp()
		case "silent":
			for range 10 {
				p.now = p.in.Deadline()
				p.in.Tick(p.now)
			}
			p.note()
		}
		if told := p.told(); told[len(told)-1] != "receive fenced" && !strings.Contains(
			strings.Join(told, ","), "receive fenced") {
			t.Fatalf("%s: %q", how, told)
		}
		p.noLeak()
	}
}

func TestLeaseExpires(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 10})
	p.now = DefaultLease - 1
	p.ledger.Tick(p.now)
	if !p.ledger.Renew("lease", p.now) {
		t.Fatal("not renewed")
	}
	p.now += DefaultLease - 1
	p.ledger.Tick(p.now)
	p.note()
	p.expect()
	p.now++
	p.ship() // Too late, though no tick came yet.
	p.feed(p.there, len(p.there), p.in.Space, p.in.Filled)
	if p.in.state != refused {
		t.Fatalf("an expired lease was opened: %v", p.in.state)
	}
	p.ledger.Tick(p.now)
	p.note()
	p.expect("receive expired")
	p.noLeak()
}

// A writer keeps its lease for as long as it is heard of; afterwards the time runs anew.
func TestWriterKeepsLease(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 10})
	for p.now < 3*DefaultLease {
		p.move(1 << 20)
		p.now += DefaultTimeout / 8
		p.tick()
	}
	p.hangUp()
	p.expect(append(opened, "receive failed connection lost", "send failed connection lost")...)
	p.now += DefaultLease - 1
	p.tick()
	if c := p.ledger.Counts(); c.Granted != 1 {
		t.Fatalf("leases: %+v", c)
	}
	p.now++
	p.tick()
	p.noLeak()
}

// More writers than the limit wait, first come first served, and are not timed out.
func TestWritersWaitForASeat(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 4})
	p.ledger.options.MaxInflight = 1
	p.move(1 << 20)
	first := *p
	p.slots = []int{100, 101, 102, 103}
	p.connect(p.grant("second"))
	for range 100 {
		p.move(1 << 20)
		p.now += DefaultTimeout / 8
		p.tick()
	}
	if p.in.state != queued || p.out.state != asking {
		t.Fatalf("%v, %v", p.in.state, p.out.state)
	}
	first.now = p.now
	first.in.Closed(p.now)
	p.events = nil
	p.send(4)
	p.seal(4)
	p.settle()
	p.expect(append(slices.Clone(delivered), "receive failed connection lost")...)
}

func TestPageFaults(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 10})
	pagesOf(p.to).failAfterWrites = 3
	p.send(10)
	p.seal(10)
	p.settle()
	p.expect(append(opened, "receive failed page fault", "send failed page fault")...)

	p = newPair(t, 3, smallShape, Window{End: 10})
	pagesOf(p.from).failReadsOfLayer = 1
	bad := p.pack.pack(owed{0, 1, 10, p.pages}, func(*parcel) {})
	if bad == nil || bad.Reason != PageFault {
		t.Fatal(bad)
	}
	p.move(1 << 20)
	p.out.GiveUp(bad, p.now)
	p.settle()
	p.expect(append(opened, "receive failed page fault", "send failed page fault")...)
}
