package transfer

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/kvrelay/engine/host/kvcache"
)

// Segment is Count consecutive positions in consecutive slots from Slot on; a slot is
// page*PageSize + offset. Slot -1 stands for positions that will have slid out of a window: they
// are counted and not sent.
type Segment struct{ Slot, Count int }

// skipped is the Slot of positions that are not sent.
const skipped = -1

// Compress makes the run-length form of a list of slots, one a position: consecutive slots merge,
// even across pages, and so do neighbouring -1.
func Compress(slots []int) []Segment {
	var segments []Segment
	for _, slot := range slots {
		if n := len(segments); n > 0 {
			last := &segments[n-1]
			if slot == last.Slot+last.Count && last.Slot != skipped ||
				slot == skipped && last.Slot == skipped {
				last.Count++
				continue
			}
		}
		segments = append(segments, Segment{Slot: slot, Count: 1})
	}
	return segments
}

// flatten is the form of the metadata string: [number of segments, slot, count, slot, count, ...].
func flatten(segments []Segment) []int {
	flat := make([]int, 0, 1+2*len(segments))
	flat = append(flat, len(segments))
	for _, s := range segments {
		flat = append(flat, s.Slot, s.Count)
	}
	return flat
}

// unflatten is the inverse of flatten; the error names the first number that cannot be.
func unflatten(flat []int) ([]Segment, *Error) {
	if len(flat) == 0 || len(flat)%2 == 0 || flat[0] != len(flat)/2 {
		return nil, fault(InvalidMetadata, "%d numbers are not [n, slot, count, ...]", len(flat))
	}
	segments := make([]Segment, 0, flat[0])
	for i := 1; i < len(flat); i += 2 {
		segments = append(segments, Segment{Slot: flat[i], Count: flat[i+1]})
	}
	return segments, nil
}

// checkSegments says what is wrong with segments for a window of so many positions: counts that
// are not positive or do not sum to it, slots out of range or named twice.
func checkSegments(segments []Segment, positions int) *Error {
	sum := 0
	for i, s := range segments {
		if s.Count <= 0 || s.Count > MaxPositions {
			return fault(InvalidMetadata, "segment %d has %d slots", i, s.Count)
		}
		if s.Slot < skipped || s.Slot > math.MaxInt32-s.Count {
			return fault(InvalidMetadata, "segment %d starts at slot %d", i, s.Slot)
		}
		if sum += s.Count; sum > positions {
			break
		}
	}
	if sum != positions {
		return fault(InvalidMetadata, "segments hold %d slots or more, the window has %d positions",
			sum, positions)
	}
	sorted := slices.SortedFunc(slices.Values(segments), func(a, b Segment) int {
		return cmp.Compare(a.Slot, b.Slot)
	})
	for i := 1; i < len(sorted); i++ {
		before := sorted[i-1]
		if before.Slot != skipped && before.Slot+before.Count > sorted[i].Slot {
			return fault(InvalidMetadata, "slot %d is named twice", sorted[i].Slot)
		}
	}
	return nil
}

// layout maps the positions of a window to the slots of one model. It never changes.
type layout struct {
	window    Window
	pageSize  int
	slotBytes int
	layers    int
	segments  []Segment
	starts    []int // the first position of each segment
}

// newLayout takes segments that checkSegments has passed.
func newLayout(w Window, m Model, segments []Segment) layout {
	l := layout{
		window: w, pageSize: m.Compat.PageSize, slotBytes: m.SlotBytes, layers: m.Compat.Layers,
		segments: segments, starts: make([]int, len(segments)),
	}
	position := w.Begin
	for i, s := range segments {
		l.starts[i] = position
		position += s.Count
	}
	return l
}

// find is the segment that holds position p of the window.
func (l *layout) find(p int) int {
	return sort.Search(len(l.starts), func(i int) bool { return l.starts[i] > p }) - 1
}

// due is the first position at or after p that is sent, at most the window's end.
func (l *layout) due(p int) int {
	for p < l.window.End {
		i := l.find(p)
		if l.segments[i].Slot != skipped {
			return p
		}
		p = l.starts[i] + l.segments[i].Count
	}
	return p
}

// run is the slots of the positions from p on, p < end, as far as they follow one another in one
// page. For a position that is not sent its Page is -1 and its Count the positions to skip.
func (l *layout) run(p, end int) kvcache.SlotRange {
	i := l.find(p)
	s, offset := l.segments[i], p-l.starts[i]
	count := min(s.Count-offset, end-p)
	if s.Slot == skipped {
		return kvcache.SlotRange{Page: -1, Count: count}
	}
	slot := s.Slot + offset
	first := slot % l.pageSize
	return kvcache.SlotRange{
		Page: kvcache.PageID(slot / l.pageSize), First: first, Count: min(count, l.pageSize-first),
	}
}

// sent is the number of positions in [from, window.End) that are sent.
func (l *layout) sent(from int) int {
	n := 0
	for i, s := range l.segments {
		if s.Slot != skipped {
			n += max(0, l.starts[i]+s.Count-max(l.starts[i], from))
		}
	}
	return n
}

// bytes is the keys and values of all layers from position from on.
func (l *layout) bytes(from int) int64 {
	return int64(l.sent(from)) * int64(l.slotBytes) * int64(l.layers)
}

// reach is the end of the longest [p, reach) within [p, end) in which every position is sent.
func (l *layout) reach(p, end int) int {
	for p < end {
		i := l.find(p)
		if l.segments[i].Slot == skipped {
			break
		}
		p = min(end, l.starts[i]+l.segments[i].Count)
	}
	return p
}
