package transfer

import (
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
)

// frameBytes is how much KV a sender puts in a data frame, where it has so much: large enough that
// headers and system calls cost nothing, small enough to stay in a processor's cache.
const frameBytes = 512 << 10

// parcel is a data frame in the making: room for its header, its place, then the keys and values.
type parcel struct {
	place
	whole []byte
	leaf  digest
	ready bool // finished

	inLane bool // a placed frame: the keys and values lie in the lane, from byte at on
	at     int
	bytes  int
}

// kv is how many bytes of keys and values a frame stands for.
func (p *parcel) kv() int {
	if p.inLane {
		return p.bytes
	}
	return len(p.whole) - dataHeadSize
}

// finish completes the frame and its leaf of the digest.
func (p *parcel) finish(with pass) {
	if p.ready {
		return
	}
	p.ready = true
	if p.inLane {
		p.putPlaced(p.whole[headerSize:], p.at)
		putHeader(p.whole, kindPlaced, with)
	} else {
		p.put(p.whole[headerSize:], p.whole[dataHeadSize:])
		putHeader(p.whole, kindData, with)
	}
	p.leaf = leafOf(p.whole[headerSize:])
}

// packer cuts what each layer owes into data frames. A frame holds consecutive positions; its keys
// and values are in the pieces that the receiver's pages cut them into (layout.run), each in the
// canonical layout of a range, so that the receiver writes them as they stand.
type packer struct {
	models  []Model
	layouts []layout
	next    [][]int // [model][layer] the first position not sent
	staged  [][]int // [model][layer] the first position not staged; of Send's goroutine alone
	most    int     // bytes of KV in a frame
	room    func(size int) []byte
	scratch []byte
}

// newPacker starts at position from. Room gives buffers for whole frames.
func newPacker(m *Metadata, models []Model, from int, room func(int) []byte) *packer {
	p := &packer{models: models, most: frameBytes, room: room}
	for i, model := range models {
		l := newLayout(m.Window, model, m.Segments[i])
		p.layouts = append(p.layouts, l)
		next := make([]int, l.layers)
		for layer := range next {
			next[layer] = l.due(from)
		}
		p.next = append(p.next, next)
		p.staged = append(p.staged, slices.Clone(next))
	}
	return p
}

// owed is what a layer of a model has to send below end, and the page table it stands in.
type owed struct {
	model, layer, end int
	pages             []kvcache.PageID
}

// pack reads what is due out of the pages, a frame at a time.
func (p *packer) pack(what owed, ship func(*parcel)) *Error {
	for {
		one, bad := p.one(what)
		if one == nil {
			return bad
		}
		ship(one)
	}
}

// one reads the next frame of what is owed; nil when nothing is due any more.
func (p *packer) one(what owed) (*parcel, *Error) {
	model, layer := what.model, what.layer
	if model < 0 || model >= len(p.models) || layer < 0 || layer >= p.layouts[model].layers {
		return nil, fault(PageFault, "there is no model %d layer %d", model, layer)
	}
	l := &p.layouts[model]
	end := min(what.end, l.window.End)
	next := &p.next[model][layer]
	if *next >= end {
		return nil, nil
	}
	if (end-1)/l.pageSize >= len(what.pages) {
		return nil, fault(PageFault, "%d pages do not reach position %d", len(what.pages), end-1)
	}
	at := *next
	stop := l.reach(at, cut(l, at, end, p.most))
	whole := &parcel{
		place: place{model, layer, at, stop - at},
		whole: p.room(dataHeadSize + (stop-at)*l.slotBytes),
	}
	if bad := p.fill(whole, l, what.pages); bad != nil {
		return nil, bad
	}
	*next = l.due(stop)
	return whole, nil
}

// stage tells pages that can copy themselves beside the forward pass what pack will read of them.
// It is of the goroutine that calls Send, while another one packs.
func (p *packer) stage(what owed) *Error {
	if what.model < 0 || what.model >= len(p.models) || what.layer < 0 ||
		what.layer >= p.layouts[what.model].layers {
		return nil // pack says so.
	}
	pages, ok := p.models[what.model].Pages.(StagedPages)
	l, at := &p.layouts[what.model], &p.staged[what.model][what.layer]
	end := min(what.end, l.window.End)
	if !ok || *at >= end || (end-1)/l.pageSize >= len(what.pages) {
		return nil
	}
	var ranges []kvcache.SlotRange
	for *at < end {
		first := *at % l.pageSize
		r := kvcache.SlotRange{Page: what.pages[*at/l.pageSize], First: first,
			Count: min(end-*at, l.pageSize-first)}
		ranges = append(ranges, r)
		*at += r.Count
	}
	if err := pages.Stage(what.layer, ranges); err != nil {
		return fault(PageFault, "stage layer %d: %v", what.layer, err)
	}
	return nil
}

// late says that pages may be read when it suits: what was appended stays as it is until the
// transfer has ended. In a sliding window pages go before.
func late(models []Model) bool {
	for _, m := range models {
		pages, ok := m.Pages.(LatePages)
		if m.Compat.Window > 0 || !ok || !pages.ReadsLate() {
			return false
		}
	}
	return true
}

// cut is where a frame of most bytes that starts at position at ends at the latest: at a page's end
// where one fits, so that the next starts with a whole page.
func cut(l *layout, at, end, most int) int {
	stop := at + max(1, most/l.slotBytes)
	if stop >= end {
		return end
	}
	if aligned := stop - stop%l.pageSize; aligned > at {
		return aligned
	}
	return stop
}

// fill reads the pieces of a parcel.
func (p *packer) fill(out *parcel, l *layout, pages []kvcache.PageID) *Error {
	dst := out.whole[dataHeadSize:]
	end := out.position + out.count
	for at := out.position; at < end; {
		n := l.run(at, end).Count
		piece := dst[:n*l.slotBytes]
		if bad := p.read(out, l, source{at, n, pages}, piece); bad != nil {
			return bad
		}
		dst, at = dst[len(piece):], at+n
	}
	return nil
}

// source is n positions from at on, in the pages of the sender's page table.
type source struct {
	at, n int
	pages []kvcache.PageID
}

// read fills dst, the canonical layout of n slots. Both ends usually cut positions into pages
// alike; where they do not, the piece is put together from parts of several pages.
func (p *packer) read(out *parcel, l *layout, s source, dst []byte) *Error {
	half := len(dst) / 2
	keyBytes := l.slotBytes / 2
	for done := 0; done < s.n; {
		position := s.at + done
		if s.pages[position/l.pageSize] == kvcache.None {
			return fault(PageFault, "position %d is due and slid out of the window here", position)
		}
		first := position % l.pageSize
		r := kvcache.SlotRange{
			Page: s.pages[position/l.pageSize], First: first,
			Count: min(s.n-done, l.pageSize-first),
		}
		part := dst
		if r.Count < s.n {
			part = p.scratchOf(r.Count * l.slotBytes)
		}
		if err := p.models[out.model].Pages.ReadPage(out.layer, r, part); err != nil {
			return fault(PageFault, "read layer %d of page %d: %v", out.layer, r.Page, err)
		}
		if r.Count < s.n {
			keys := r.Count * keyBytes
			copy(dst[done*keyBytes:], part[:keys])
			copy(dst[half+done*keyBytes:], part[keys:])
		}
		done += r.Count
	}
	return nil
}

func (p *packer) scratchOf(size int) []byte {
	if size > cap(p.scratch) {
		p.scratch = make([]byte, size)
	}
	return p.scratch[:size]
}

// totalBytes is all keys and values of a window.
func totalBytes(m *Metadata, models []Model) int64 {
	var sum int64
	for i, model := range models {
		l := newLayout(m.Window, model, m.Segments[i])
		sum += l.bytes(m.Window.Begin)
	}
	return sum
}
