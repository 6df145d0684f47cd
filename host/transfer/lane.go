package transfer

import (
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer/nearby"
)

// Lane is memory that both ends of a connection reach beside its bytes, by the number under which
// the device knows it, and its size in bytes. The sender's device puts keys and values there and a
// placed frame says where; the receiver's device takes them from there and says so.
type Lane struct{ Number, Bytes int }

// LanePages are LatePages in the memory of a device that reaches lanes. The bytes of several ranges
// follow one another in a lane, each range as in Pages.
//
// PutRanges begins to copy slots of a layer into a lane from byte at on, a multiple of 256, behind
// their append and beside the rest of the forward pass; wait returns when the bytes are there. It
// is called inside Outgoing.Send or from a goroutine of the connection, and wait from one, once.
// Without room for it now, wait is nil. After an error of PutRanges nothing is under way; after one
// of wait something may be.
//
// TakeRanges copies the bytes that lie in a lane into slots, as WritePage does. When it returns,
// nothing reads the lane any more.
type LanePages interface {
	LatePages
	PutRanges(layer int, ranges []kvcache.SlotRange, lane, at int) (wait func() error, err error)
	TakeRanges(layer int, ranges []kvcache.SlotRange, lane, at int) error
}

// laned is a connection with a lane. Begin and End mark what this end has under way in it.
type laned interface {
	Loan() nearby.Loan
	Begin() bool
	End()
}

// laneOf is the lane of a connection, if it has one.
func laneOf(conn any) (Lane, bool) {
	with, ok := conn.(laned)
	if !ok || with.Loan() == nil {
		return Lane{}, false
	}
	number, bytes := with.Loan().Lane()
	return Lane{number, bytes}, true
}

// allLanes says that the pages of all models are a device's that reaches lanes.
func allLanes(models []Model) bool {
	for _, m := range models {
		if _, ok := m.Pages.(LanePages); !ok {
			return false
		}
	}
	return late(models)
}

// roomAt is where bytes lie in a lane.
type roomAt struct{ at, bytes int }

// take copies what lies in the lane into pages.
func (l Lane) take(
	pages Pages, layer int, ranges []kvcache.SlotRange, room roomAt,
) *Error {
	from, ok := pages.(LanePages)
	if !ok || room.at > l.Bytes-room.bytes {
		return fault(OutOfPlace, "layer %d lies at [%d, %d) of a lane of %d bytes",
			layer, room.at, room.at+room.bytes, l.Bytes)
	}
	if err := from.TakeRanges(layer, ranges, l.Number, room.at); err != nil {
		return fault(PageFault, "take layer %d of %d pages from the lane: %v", layer, len(ranges),
			err)
	}
	return nil
}

// laneRanges appends the slots of the positions [from, end) in the pieces in which they lie in a
// lane: cut where a page of the receiver ends and where one of the sender does, which are pages of
// equal size in which position p stands in slot p modulo the size.
func (l *layout) laneRanges(to []kvcache.SlotRange, from, end int) []kvcache.SlotRange {
	for at := from; at < end; {
		r := l.run(at, min(end, at-at%l.pageSize+l.pageSize))
		to = append(to, r)
		at += r.Count
	}
	return to
}

// shelf is what lies where in a lane, oldest first: of the sender alone. Room comes free in the
// order in which it was given.
type shelf struct {
	bytes int
	items []*item
	taken uint32 // of all placed frames, that are gone
}

// item is one piece's room. Void is that of a piece that does not go by the lane after all.
type item struct {
	roomAt
	void bool
}

// add finds room behind the youngest item, or at the lane's start; nil: there is none now.
func (s *shelf) add(bytes int) *item {
	size := (bytes + laneStep - 1) / laneStep * laneStep
	at, end := 0, s.bytes
	if n := len(s.items); n > 0 {
		first, last := s.items[0], s.items[n-1]
		at = last.at + last.bytes
		if last.at < first.at { // it went round
			end = first.at
		} else if at+size > end {
			at, end = 0, first.at
		}
	}
	if at+size > end {
		return nil
	}
	s.items = append(s.items, &item{roomAt: roomAt{at, size}})
	return s.items[len(s.items)-1]
}

// free drops what the receiver has taken, n pieces in all since the opening.
func (s *shelf) free(n uint32) {
	for len(s.items) > 0 && (s.items[0].void || s.taken < n) {
		if !s.items[0].void {
			s.taken++
		}
		s.items = s.items[1:]
	}
}

// piece is a part of a layer on its way through the lane, half of the lane at most, so that one is
// read while the next is written. All but the first three is guarded by the transfer's lock.
type piece struct {
	ranges []kvcache.SlotRange // the sender's slots
	from   int                 // the first position
	bytes  int
	room   *item        // nil: not begun
	wait   func() error // of what was begun
	waits  bool         // counted in laneOut.waiting
}

// pieces cuts what a layer owes into pieces of most bytes, and counts them as staged.
func (p *packer) pieces(what owed, most int) (all []*shipment) {
	if what.model < 0 || what.model >= len(p.models) || what.layer < 0 ||
		what.layer >= p.layouts[what.model].layers {
		return nil
	}
	l, next := &p.layouts[what.model], &p.staged[what.model][what.layer]
	end := min(what.end, l.window.End)
	if (end-1)/l.pageSize >= len(what.pages) {
		return nil
	}
	for *next < end {
		from := *next
		stop := l.reach(from, cut(l, from, end, most))
		part := what
		part.end = stop
		one := &piece{from: from, bytes: (stop - from) * l.slotBytes}
		for at := from; at < stop; {
			n := l.run(at, min(stop, at-at%l.pageSize+l.pageSize)).Count
			one.ranges = append(one.ranges, kvcache.SlotRange{Page: what.pages[at/l.pageSize],
				First: at % l.pageSize, Count: n})
			at += n
		}
		all = append(all, &shipment{owed: &part, piece: one})
		*next = l.due(stop)
	}
	return all
}
