package transfer

import (
	"slices"

	"github.com/kvrelay/engine/host/transfer/lanes"
)

// laneOut is the sender's half of a lane. All but the first two is guarded by the transfer's lock.
type laneOut struct {
	Lane
	conn laned

	shelf   shelf
	waiting int      // pieces that found no room yet: none may go before them
	begun   []*piece // whose wait was not called
	broken  bool     // nothing more goes by it
	drained bool     // the transfer is over: who begins something ends it
}

// laneFor is the lane of a connection, where the models' pages can use it.
func (s *Sender) laneFor(conn any) *laneOut {
	lane, ok := laneOf(conn)
	if !ok || !allLanes(s.options.Models) {
		return nil
	}
	out := &laneOut{Lane: lane, conn: conn.(laned), shelf: shelf{bytes: lane.Bytes}}
	for _, m := range s.options.Models {
		if m.SlotBytes > out.most() {
			return nil
		}
	}
	return out
}

// most is how large a piece may be.
func (l *laneOut) most() int { return l.Bytes / 2 / laneStep * laneStep }

// usable is the lane that layers go by; nil: they go in data frames. A rate is kept by the bytes of
// a connection, which a lane does not have.
func (o *Outgoing) usable() *laneOut {
	rate := o.sender.rate()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lane == nil || o.lane.broken || rate > 0 {
		return nil
	}
	return o.lane
}

// early begins to copy a piece inside Send, where there is room for it at once.
func (o *Outgoing) early(what *shipment) {
	o.mu.Lock()
	l := o.lane
	var room *item
	if l.waiting == 0 && !l.broken {
		room = l.shelf.add(what.piece.bytes)
	}
	o.mu.Unlock()
	if room == nil || !o.begin(what, room) {
		o.mu.Lock()
		what.piece.waits = true
		l.waiting++
		o.mu.Unlock()
	}
}

// begin starts the copy of a piece into its room. False: nothing is under way.
func (o *Outgoing) begin(what *shipment, room *item) bool {
	l, p, own := o.lane, what.piece, what.owed
	var wait func() error
	var err error = fault(Reset, "the receiver has closed the lane")
	if l.conn.Begin() {
		pages := o.sender.options.Models[own.model].Pages.(LanePages)
		if wait, err = pages.PutRanges(own.layer, p.ranges, l.Number, room.at); wait == nil {
			l.conn.End()
		}
	}
	o.mu.Lock()
	if wait == nil {
		room.void = true
		l.shelf.free(o.machine.taken)
		failed := err != nil && !l.broken
		l.broken = l.broken || err != nil
		o.mu.Unlock()
		if failed {
			o.sender.note(o, err)
		}
		return false
	}
	p.room, p.wait = room, wait
	l.begun = append(l.begun, p)
	late := l.drained
	o.mu.Unlock()
	if late {
		_ = o.finish(p) // Nobody wants to know.
	}
	return true
}

// finish waits until a piece lies in the lane. Once it does, or never was begun, the error is nil.
func (o *Outgoing) finish(p *piece) error {
	l := o.lane
	o.mu.Lock()
	i := slices.Index(l.begun, p)
	if i < 0 {
		o.mu.Unlock()
		return nil
	}
	l.begun = slices.Delete(l.begun, i, i+1)
	o.mu.Unlock()
	if err := p.wait(); err != nil {
		return err // And no End: what is under way may come yet.
	}
	l.conn.End()
	return nil
}

// drain waits for all that is under way in the lane: afterwards nothing of this transfer comes
// there any more.
func (o *Outgoing) drain() {
	o.mu.Lock()
	if o.lane == nil {
		o.mu.Unlock()
		return
	}
	o.lane.drained = true
	begun := slices.Clone(o.lane.begun)
	o.mu.Unlock()
	for _, p := range begun {
		_ = o.finish(p) // The transfer has ended already.
	}
}

// freed gives room back that the receiver has done with. The lock is held.
func (o *Outgoing) freed() {
	if o.lane != nil {
		o.lane.shelf.free(o.machine.taken)
		signal(o.roomy)
	}
}

// place puts a piece in the lane and makes the frame that says so. Nil: the piece goes in data
// frames, or, where alive is false, nowhere.
func (o *Outgoing) place(what *shipment) (frame *parcel, alive bool) {
	p, own := what.piece, what.owed
	if p.room == nil && !o.awaitShelf(what) {
		return nil, !o.isOver()
	}
	from := o.sender.clock()
	if err := o.finish(p); err != nil {
		o.mu.Lock()
		o.lane.broken = true
		o.mu.Unlock()
		o.sender.note(o, err)
		return nil, true
	}
	o.mu.Lock()
	o.span.spent(from, o.sender.clock())
	o.mu.Unlock()
	l := &o.machine.pack.layouts[own.model]
	o.machine.pack.next[own.model][own.layer] = l.due(own.end)
	frame = &parcel{place: place{own.model, own.layer, p.from, own.end - p.from},
		whole: make([]byte, dataHeadSize), inLane: true, at: p.room.at, bytes: p.bytes}
	frame.finish(o.machine.pass)
	return frame, true
}

// awaitShelf waits for room in the lane and begins to copy a piece there. False: it does not go by
// the lane, or the transfer is over.
func (o *Outgoing) awaitShelf(what *shipment) bool {
	for {
		o.mu.Lock()
		var room *item
		broken := o.lane.broken
		if !broken {
			room = o.lane.shelf.add(what.piece.bytes)
		}
		if what.piece.waits && (broken || room != nil) {
			what.piece.waits = false
			o.lane.waiting--
		}
		o.mu.Unlock()
		if broken {
			return false
		}
		if room != nil {
			return o.begin(what, room)
		}
		select {
		case <-o.roomy:
		case <-o.quit:
			return false
		}
	}
}

func (o *Outgoing) isOver() bool {
	select {
	case <-o.quit:
		return true
	default:
		return false
	}
}

// kinds are the lanes by which two transports go.
var laneKinds = map[Transport]lanes.Kind{Pinned: lanes.OnHost, IPC: lanes.OnDevice}
