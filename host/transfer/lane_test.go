package transfer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// How two ends with devices meet: on one, on two that are linked, on two that are not.
var meetings = map[Transport]func(*laneRig, *SenderOptions){
	IPC:  func(*laneRig, *SenderOptions) {},
	Peer: func(l *laneRig, _ *SenderOptions) { l.far.identity = "b" },
	Pinned: func(l *laneRig, _ *SenderOptions) {
		l.far.identity, l.near.unlinked, l.far.unlinked = "b", true, true
	},
}

// TestLanesCarry: keys and values go by a lane of each kind, whatever cuts positions into pages at
// both ends, with room for two pieces in the lane; connections after the first find it mapped.
func TestLanesCarry(t *testing.T) {
	for by, change := range meetings {
		t.Run(string(by), func(t *testing.T) {
			l := newLaneRig(t, change)
			for i, w := range [][3]int{{0, 100, 0}, {3, 120, 6}, {17, 18, 1}, {5, 160, 0}} {
				if l.carry(t, fmt.Sprint("t", i), w[0], w[1], w[2]); l.by != by {
					t.Errorf("transfer %d was carried by %s", i, l.by)
				}
			}
			if made, busy, held := l.settled(); made != 1 || busy+held > 0 {
				t.Errorf("%d lanes made, %d busy, %d held", made, busy, held)
			}
			if n := l.borrower.Open(); n != 1 {
				t.Errorf("%d lanes are mapped", n)
			}
			if l.near.largest != smallLane/2 {
				t.Errorf("the largest copy had %d bytes, half a lane has %d", l.near.largest,
					smallLane/2)
			}
			if said := l.noted(); (by == Pinned) != (len(said) == 1) {
				t.Errorf("noted: %q", said)
			}
		})
	}
}

// settled waits until the connections that ended have given their lanes back, and counts.
func (l *laneRig) settled() (made, busy, held int) {
	for {
		if made, busy, held = l.lender.Counts(); busy == 0 {
			return made, busy, held
		}
		runtime.Gosched()
	}
}

// TestOneCopyALayer: a layer that fits half a lane leaves in one copy, begun inside Send.
func TestOneCopyALayer(t *testing.T) {
	l := newLaneRig(t, func(l *laneRig, _ *SenderOptions) { l.near.started = make(chan int, 64) })
	out := l.begin(t, "a", 0, 8, 0)
	for layer := range laneShape.layers {
		if err := out.Send(0, layer, 8, firstPages(2)); err != nil {
			t.Fatal(err)
		}
		if layer == 0 && len(l.near.started) != 1 {
			t.Error("the first layer's copy was not begun when Send returned")
		}
	}
	out.Seal()
	l.wait(t, Done, Sending)
	if l.near.copies != laneShape.layers {
		t.Errorf("%d copies of %d layers", l.near.copies, laneShape.layers)
	}
}

// TestLanesFallBack: what fails on the way to a lane costs the lane and nothing of the transfer,
// and is told once.
func TestLanesFallBack(t *testing.T) {
	failing := func(d *laneDevice, calls ...string) {
		d.fail = func(call string) error {
			if slices.Contains(calls, call) {
				return errPlanted
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		change func(*laneRig, *SenderOptions)
		by     Transport
		notes  int
	}{
		"a handle that is not opened": {func(l *laneRig, _ *SenderOptions) {
			failing(l.near, "borrow")
		}, Pinned, 1},
		"memory that is not lent": {func(l *laneRig, _ *SenderOptions) {
			failing(l.far, "lend")
		}, Pinned, 1},
		"a lane that is other memory": {func(l *laneRig, _ *SenderOptions) {
			l.near.fail = func(call string) error {
				if call == "attach" || call == "borrow" {
					l.near.strange = true
				}
				return nil
			}
		}, Shared, 2},
		"memory that is not registered there": {func(l *laneRig, _ *SenderOptions) {
			failing(l.far, "lend", "attach")
		}, Shared, 2},
		"memory that is not registered here": {func(l *laneRig, so *SenderOptions) {
			so.Transports = []Transport{Shared, TCP}
			failing(l.near, "attach")
		}, Shared, 1},
		"a copy that is refused": {func(l *laneRig, _ *SenderOptions) {
			failing(l.near, "put")
		}, IPC, 1},
		"a driver without identities": {func(l *laneRig, _ *SenderOptions) {
			l.near.identity, l.far.identity = "", ""
		}, Pinned, 1},
		"a rate":    {func(_ *laneRig, so *SenderOptions) { so.MaxRate = 1 << 40 }, IPC, 0},
		"no device": {func(_ *laneRig, so *SenderOptions) { so.Lanes = nil }, Shared, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaneRig(t, c.change)
			for i := range 3 {
				if l.carry(t, fmt.Sprint("t", i), 3, 100, 6); l.by != c.by {
					t.Errorf("transfer %d was carried by %s, want %s", i, l.by, c.by)
				}
			}
			// A copy that is refused is told by each of the three transfers.
			said := l.noted()
			if want := c.notes; len(said) != want && !(c.by == IPC && want == 1 && len(said) == 3) {
				t.Errorf("noted: %q", said)
			}
		})
	}
}

// TestCopiesThatFailInTheMiddle: a copy is refused, finds no room, or fails, at any place: its keys
// and values go in data frames, and so does what follows it.
func TestCopiesThatFailInTheMiddle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, call := range []string{"put", "full", "wait"} {
		for range 6 {
			var calls atomic.Int32
			at := int32(1 + random.IntN(30))
			l := newLaneRig(t, func(l *laneRig, _ *SenderOptions) {
				l.near.fail = func(name string) error {
					fails := name == call || name == "put" && call == "full"
					if !fails || calls.Add(1) < at {
						return nil
					}
					if call == "full" {
						return errFull
					}
					return errPlanted
				}
			})
			l.carry(t, "a", 3, 150, 6)
			_, _, held := l.settled()
			failed := calls.Load() >= at
			if want := call == "wait" && failed; (held == 1) != want {
				t.Errorf("%s at %d: %d lanes are held", call, at, held)
			}
		}
	}
}

// TestLateCopiesReachNoPage: a transfer is given up while a copy of its is under way. Its lane is
// lent to nobody until that copy has ended, whoever closes the connection; the lease's next owner
// gets its own bytes.
func TestLateCopiesReachNoPage(t *testing.T) {
	for by, change := range meetings {
		for _, layers := range []int{1, laneShape.layers} { // of large pieces, and of many
			t.Run(fmt.Sprint(by, layers), func(t *testing.T) { lateCopies(t, change, layers) })
		}
	}
}

func lateCopies(t *testing.T, change func(*laneRig, *SenderOptions), layers int) {
	l := newLaneRig(t, func(l *laneRig, so *SenderOptions) {
		l.near.held, l.near.started = make(chan struct{}), make(chan int, 64)
		change(l, so)
	})
	out := l.begin(t, "a", 0, 100, 0)
	end := 100 // Of many layers all fit the lane.
	if layers > 1 {
		end = smallLane / layers / laneShape.slotBytes
	}
	for layer := range layers {
		if err := out.Send(0, layer, end, firstPages(25)); err != nil {
			t.Fatal(err)
		}
		<-l.near.started
	}
	l.receiver.Release("a") // It answers later: the writer must be fenced first.
	for held := 0; held == 0; runtime.Gosched() {
		_, _, held = l.lender.Counts()
	}
	if _, err := l.receiver.Grant("b", Reservation{Window: Window{End: 100},
		Segments: [][]Segment{{{Slot: 0, Count: 100}}}}); err != nil {
		t.Fatal(err)
	}
	l.receiver.Release("b")
	close(l.near.held) // The late copy runs now, or at any time.
	for held := 1; held > 0; runtime.Gosched() {
		_, _, held = l.lender.Counts()
	}
	if len(pagesOf(l.to).writes) > 0 {
		t.Fatalf("%d slots were written", len(pagesOf(l.to).writes))
	}
	l.ended(t, "a")
	l.near.held, l.near.started = nil, nil
	l.carry(t, "c", 0, 100, 0)
}

// ended waits for the failure of a transfer at its sender.
func (l *laneRig) ended(t *testing.T, id string) {
	t.Helper()
	for e := range l.heard {
		if e.ID == id && e.Direction == Sending && e.Kind == Failed {
			return
		}
	}
}

// TestLanesRunOut: more transfers at once than there are lanes: the rest go without.
func TestLanesRunOut(t *testing.T) {
	l := newLaneRig(t, func(l *laneRig, so *SenderOptions) {
		so.Transports = []Transport{IPC, Shared}
	})
	var all []*Outgoing
	var want = []Transport{IPC, IPC, Pinned, Pinned, Shared, Shared}
	for i := range want {
		all = append(all, l.begin(t, fmt.Sprint("t", i), 0, 16, 16*i))
	}
	for i, out := range all {
		sendLayers(t, out, 16)
		if e := l.wait(t, Done, Sending); e.Transport != want[i] {
			t.Errorf("transfer %d was carried by %s, want %s", i, e.Transport, want[i])
		}
	}
	if said := l.noted(); len(said) != 2 || !strings.Contains(said[0], "are lent") {
		t.Errorf("noted: %q", said)
	}
}

// TestLanesHammered: many transfers at once over few lanes, some cancelled, some released in their
// middle: every lane comes back. Made for the race detector.
func TestLanesHammered(t *testing.T) {
	many := shape{layers: 3, pages: 320, pageSize: 4, slotBytes: 256}
	for by, change := range meetings {
		t.Run(string(by), func(t *testing.T) {
			l := newLaneRigOf(t, many, func(l *laneRig, so *SenderOptions) {
				so.Note = nil
				change(l, so)
			})
			testHammer(t, l.rig)
			if made, busy, held := l.settled(); made > 2*laneMost || busy+held > 0 {
				t.Errorf("%d lanes made, %d busy, %d held", made, busy, held)
			}
			if l.near.copies == 0 {
				t.Error("nothing went by a lane")
			}
		})
	}
}

// TestPlacedWithoutALane: a frame that points into no lane, or beyond one, is refused, and so is an
// answer about pieces that were not placed.
func TestPlacedWithoutALane(t *testing.T) {
	for _, bytes := range []int{0, 256} {
		p := newPair(t, 1, smallShape, Window{End: 4})
		p.in.lane = Lane{Number: 1, Bytes: bytes}
		p.settleOpening()
		head := make([]byte, dataHead)
		place{count: 4}.putPlaced(head, 256)
		p.in.Take(appendFrame(nil, kindPlaced, p.out.pass, head), p.now)
		if p.in.state != refused {
			t.Errorf("a lane of %d bytes: %v", bytes, p.in.state)
		}
		if len(pagesOf(p.to).writes) > 0 {
			t.Error("slots were written")
		}
	}
	for _, n := range []byte{0, 1} {
		p := newPair(t, 1, smallShape, Window{End: 4})
		p.settleOpening()
		p.out.Take(appendFrame(nil, kindTaken, p.out.pass, []byte{n, 0, 0, 0}), p.now)
		if p.out.state != failed || p.out.Err().Reason != Malformed {
			t.Errorf("%d taken of none: %v, %v", n, p.out.state, p.out.Err())
		}
	}
}

// settleOpening carries the opening and its answer.
func (p *pair) settleOpening() {
	p.move(1 << 20)
	p.move(1 << 20)
}

// TestShelf gives room and takes it back at random beside a map of who has which byte.
func TestShelf(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const size = 8 << 10
	s := shelf{bytes: size}
	var items []*item
	taken := uint32(0)
	for range 20_000 {
		if random.IntN(2) == 0 {
			bytes := 1 + random.IntN(size/2)
			one := s.add(bytes)
			if one == nil {
				if len(items) == 0 {
					t.Fatalf("no room for %d bytes on an empty shelf", bytes)
				}
				continue
			}
			if one.at < 0 || one.at%laneStep != 0 || one.bytes < bytes || one.at+one.bytes > size {
				t.Fatalf("%+v for %d bytes", one, bytes)
			}
			for _, other := range items {
				if one.at < other.at+other.bytes && other.at < one.at+one.bytes {
					t.Fatalf("%+v overlaps %+v", one, other)
				}
			}
			one.void = random.IntN(8) == 0
			items = append(items, one)
		} else if len(items) > 0 {
			if !items[0].void {
				taken++
			}
			items = items[1:]
			s.free(taken)
			for len(items) > 0 && items[0].void {
				items = items[1:]
			}
		}
	}
}
