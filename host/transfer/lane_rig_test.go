package transfer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer/lanes"
	"github.com/kvrelay/engine/host/transfer/nearby"
)

// card is a GPU: memory that two processes may map.
type card struct {
	mu   sync.Mutex
	lent map[string][]byte
}

// laneDevice is a process's device as lanes see it. What it copies into a lane comes there when it
// is waited for, and not before.
type laneDevice struct {
	*card
	identity string
	unlinked bool
	strange  bool                    // lanes are other memory than they should be
	fail     func(call string) error // nil: nothing fails
	held     chan struct{}           // copies wait until it is closed; nil: they do not

	lanes   map[int][]byte
	last    int
	started chan int // a place that a copy was begun for; nil: nobody looks
	largest int      // copy, in bytes
	copies  int
}

var errPlanted = errors.New("planted")

func (d *laneDevice) call(name string) error {
	if d.fail != nil {
		return d.fail(name)
	}
	return nil
}

func (d *laneDevice) add(memory []byte) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	d.lanes[d.last] = memory
	return d.last
}

func (d *laneDevice) lane(n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes[n]
}

func (d *laneDevice) Identity() string { return d.identity }

func (d *laneDevice) Reaches(string) bool { return !d.unlinked }

func (d *laneDevice) AttachLane(memory []byte, _ bool) (int, error) {
	if err := d.call("attach"); err != nil {
		return 0, err
	}
	return d.add(memory), nil
}

func (d *laneDevice) LendLane(bytes int) (int, []byte, error) {
	if err := d.call("lend"); err != nil {
		return 0, nil, err
	}
	memory := make([]byte, bytes)
	n := d.add(memory)
	handle := fmt.Sprintf("%s %d", d.identity, n)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lent[handle] = memory
	return n, []byte(handle), nil
}

func (d *laneDevice) BorrowLane(handle []byte, bytes int, _ string) (int, error) {
	if err := d.call("borrow"); err != nil {
		return 0, err
	}
	d.mu.Lock()
	memory := d.lent[string(handle)]
	d.mu.Unlock()
	if len(memory) != bytes {
		return 0, errPlanted
	}
	return d.add(memory), nil
}

func (d *laneDevice) DetachLane(n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lanes[n] == nil {
		return errPlanted
	}
	delete(d.lanes, n)
	return nil
}

func (d *laneDevice) PokeLane(n, at int, src []byte) error {
	lane := d.lane(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(lane[at:], src)
	return nil
}

func (d *laneDevice) PeekLane(n, at int, dst []byte) error {
	lane := d.lane(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.strange {
		copy(dst, lane[at:])
	}
	return nil
}

// PutRanges implements LanePages on the pages' device.
func (p *fakePages) PutRanges(
	layer int, ranges []kvcache.SlotRange, lane, at int,
) (func() error, error) {
	d := p.device
	if err := d.call("put"); errors.Is(err, errFull) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if d.started != nil {
		d.started <- at
	}
	size := 0
	for _, r := range ranges {
		size += 2 * r.Count * p.half
	}
	d.mu.Lock()
	d.largest, d.copies = max(d.largest, size), d.copies+1
	d.mu.Unlock()
	ranges = slices.Clone(ranges)
	return func() error {
		if d.held != nil {
			<-d.held
		}
		if err := d.call("wait"); err != nil {
			return err
		}
		to := d.lane(lane)[at:]
		d.mu.Lock() // The ends know of each other by memory that the race detector cannot follow.
		defer d.mu.Unlock()
		for _, r := range ranges {
			n := 2 * r.Count * p.half
			if err := p.ReadPage(layer, r, to[:n]); err != nil {
				return err
			}
			to = to[n:]
		}
		return nil
	}, nil
}

// errFull is a device that has no room for a copy now.
var errFull = errors.New("full")

// TakeRanges implements LanePages.
func (p *fakePages) TakeRanges(layer int, ranges []kvcache.SlotRange, lane, at int) error {
	if err := p.device.call("take"); err != nil {
		return err
	}
	from := p.device.lane(lane)[at:]
	p.device.mu.Lock()
	defer p.device.mu.Unlock()
	for _, r := range ranges {
		n := 2 * r.Count * p.half
		if err := p.WritePage(layer, r, from[:n]); err != nil {
			return err
		}
		from = from[n:]
	}
	return nil
}

// laneRig is a rig whose ends have devices.
type laneRig struct {
	*rig
	near, far *laneDevice // the sender's, the receiver's
	lender    *lanes.Lender
	borrower  *lanes.Borrower
	notes     chan string
}

// laneShape has layers of many times the lanes' size.
var laneShape = shape{layers: 4, pages: 40, pageSize: 4, slotBytes: 1024}

const (
	smallLane = 16 << 10
	laneMost  = 2
)

// newLaneRig makes a rig that may use all transports; change sees it before anything is connected.
func newLaneRig(t *testing.T, change func(*laneRig, *SenderOptions)) *laneRig {
	return newLaneRigOf(t, laneShape, change)
}

func newLaneRigOf(t *testing.T, s shape, change func(*laneRig, *SenderOptions)) *laneRig {
	t.Helper()
	if !nearby.HasShared {
		t.Skip("no shared memory")
	}
	both := &card{lent: map[string][]byte{}}
	l := &laneRig{notes: make(chan string, 64),
		near: &laneDevice{card: both, identity: "a", lanes: map[int][]byte{}},
		far:  &laneDevice{card: both, identity: "a", lanes: map[int][]byte{}}}
	l.lender = lanes.NewLender(l.far, smallLane, laneMost)
	l.borrower = lanes.NewBorrower(l.near)
	l.rig = newRigWith(t, s, func(ro *ReceiverOptions, so *SenderOptions) {
		for _, m := range []Model{ro.Models[0], so.Models[0]} {
			pagesOf(m).late = true
		}
		pagesOf(so.Models[0]).device, pagesOf(ro.Models[0]).device = l.near, l.far
		ro.Lanes, so.Lanes = l.lender, l.borrower
		so.Transports = []Transport{IPC, Shared, Unix, TCP}
		so.Note = func(_ string, by Transport, err error) { l.notes <- fmt.Sprint(by, ": ", err) }
		change(l, so)
	})
	return l
}

// begin opens a transfer of so many positions from begin on to slots that do not lie in their pages
// as the sender's do.
func (l *laneRig) begin(t *testing.T, id string, begin, end, slot int) *Outgoing {
	t.Helper()
	w := Window{Begin: begin, End: end}
	text, err := l.receiver.Grant(id, Reservation{
		Window: w, Segments: [][]Segment{{{Slot: slot, Count: w.Len()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.sender.Parse(text, w)
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.sender.Open(id, m)
	if err != nil {
		t.Fatal(err)
	}
	if e := l.wait(t, Opened, Sending); e.ID != id {
		t.Fatalf("%s opened, want %s", e.ID, id)
	}
	return out
}

// sendLayers is a prompt that is computed in two chunks.
func sendLayers(t *testing.T, out *Outgoing, ends ...int) {
	t.Helper()
	for _, end := range ends {
		for layer := range laneShape.layers {
			if err := out.Send(0, layer, end, firstPages(laneShape.pages)); err != nil {
				t.Fatal(err)
			}
		}
		out.SealChunk(end)
	}
	out.Seal()
}

// carry moves positions [begin, end) to slots from slot on and checks that they arrived.
func (l *laneRig) carry(t *testing.T, id string, begin, end, slot int) {
	t.Helper()
	pagesOf(l.to).writes = map[[2]int]int{}
	out := l.begin(t, id, begin, end, slot)
	sendLayers(t, out, (begin+end)/2, end)
	e := l.wait(t, Done, Sending)
	l.by = e.Transport
	size := int64((end - begin) * laneShape.layers * laneShape.slotBytes)
	if e.Bytes != size {
		t.Errorf("%d bytes were sent, want %d", e.Bytes, size)
	}
	var slots []int
	for i := range end - begin {
		slots = append(slots, slot+i)
	}
	l.sameKV(t, begin, firstPages(laneShape.pages), slots)
	l.receiver.Release(id)
	l.settled()
}

// noted is what was told of lanes that are not used.
func (l *laneRig) noted() (all []string) {
	for len(l.notes) > 0 {
		all = append(all, <-l.notes)
	}
	return all
}
