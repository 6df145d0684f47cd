package transfer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
)

// fakePages is the memory of one model: [layer][slot] of keys and of values. It refuses ranges that
// leave a page and counts the writes of each slot, unless writes is nil.
type fakePages struct {
	mu               sync.Mutex
	layers, pages    int
	pageSize, half   int // half: bytes of a key, and of a value
	keys, values     [][]byte
	writes           map[[2]int]int // (layer, slot)
	failAfterWrites  int            // 0 = never
	writeCalls       int
	failReadsOfLayer int // -1 = never
	late             bool
	staged           map[[2]int]int // (layer, slot): how often, unless nil
	failStages       bool
	device           *laneDevice // where lanes are reached
}

func (p *fakePages) ReadsLate() bool { return p.late }

// Stage counts the slots that will be read.
func (p *fakePages) Stage(layer int, ranges []kvcache.SlotRange) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failStages {
		return fmt.Errorf("planted")
	}
	for _, r := range ranges {
		if _, _, err := p.span(layer, r, 2*r.Count*p.half); err != nil {
			return err
		}
		for i := 0; i < r.Count && p.staged != nil; i++ {
			p.staged[[2]int{layer, int(r.Page)*p.pageSize + r.First + i}]++
		}
	}
	return nil
}

func newFakePages(layers, pages, pageSize, slotBytes int) *fakePages {
	p := &fakePages{
		layers: layers, pages: pages, pageSize: pageSize, half: slotBytes / 2,
		writes: map[[2]int]int{}, failReadsOfLayer: -1,
	}
	for range layers {
		p.keys = append(p.keys, make([]byte, pages*pageSize*p.half))
		p.values = append(p.values, make([]byte, pages*pageSize*p.half))
	}
	return p
}

func (p *fakePages) span(layer int, r kvcache.SlotRange, size int) (from, to int, err error) {
	if layer < 0 || layer >= p.layers || r.Page < 0 || int(r.Page) >= p.pages || r.First < 0 ||
		r.Count <= 0 || r.First+r.Count > p.pageSize || size != 2*r.Count*p.half {
		return 0, 0, fmt.Errorf("layer %d, %+v, %d bytes", layer, r, size)
	}
	slot := int(r.Page)*p.pageSize + r.First
	return slot * p.half, (slot + r.Count) * p.half, nil
}

func (p *fakePages) ReadPage(layer int, r kvcache.SlotRange, dst []byte) error {
	from, to, err := p.span(layer, r, len(dst))
	if err == nil && layer == p.failReadsOfLayer {
		err = fmt.Errorf("planted")
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < r.Count && p.staged != nil; i++ {
		if at := int(r.Page)*p.pageSize + r.First + i; p.staged[[2]int{layer, at}] != 1 {
			return fmt.Errorf("slot %d of layer %d was staged %d times", at, layer,
				p.staged[[2]int{layer, at}])
		}
	}
	copy(dst, p.keys[layer][from:to])
	copy(dst[to-from:], p.values[layer][from:to])
	return nil
}

func (p *fakePages) WritePage(layer int, r kvcache.SlotRange, src []byte) error {
	from, to, err := p.span(layer, r, len(src))
	if err != nil {
		return err
	}
	if p.writes == nil {
		copy(p.keys[layer][from:to], src)
		copy(p.values[layer][from:to], src[to-from:])
		return nil
	}
	p.mu.Lock()
	p.writeCalls++
	planted := p.failAfterWrites > 0 && p.writeCalls >= p.failAfterWrites
	for i := range r.Count {
		p.writes[[2]int{layer, int(r.Page)*p.pageSize + r.First + i}]++
	}
	p.mu.Unlock()
	if planted {
		return fmt.Errorf("planted")
	}
	copy(p.keys[layer][from:to], src)
	copy(p.values[layer][from:to], src[to-from:])
	return nil
}

// fill gives every slot of every layer bytes of its own.
func (p *fakePages) fill(seed uint64) {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	for layer := range p.layers {
		_, _ = source.Read(p.keys[layer])
		_, _ = source.Read(p.values[layer])
	}
}

// shape is the sizes of one fake model.
type shape struct{ layers, pages, pageSize, slotBytes int }

var smallShape = shape{layers: 3, pages: 40, pageSize: 4, slotBytes: 8}

func (s shape) model() Model {
	return Model{
		Compat: Compat{
			Model: "m", Weights: "w", DType: "f32", PageSize: s.pageSize, Layers: s.layers,
			KVHeads: 1, HeadDim: s.slotBytes / 8, Rope: "theta=10000", Numerics: "fma",
		},
		Pages:     newFakePages(s.layers, s.pages, s.pageSize, s.slotBytes),
		SlotBytes: s.slotBytes,
	}
}

func pagesOf(m Model) *fakePages { return m.Pages.(*fakePages) }

// chance is a seeded source of bytes, for keys and tokens.
func chance(seed uint64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

// slotsFor gives count positions that start at begin their slots in a page table made of random
// distinct pages, as a page table does it: position p at offset p%pageSize.
func slotsFor(r *rand.Rand, s shape, begin, end int) (pages []kvcache.PageID, slots []int) {
	order := r.Perm(s.pages)
	for i := range (end + s.pageSize - 1) / s.pageSize {
		pages = append(pages, kvcache.PageID(order[i]))
	}
	for p := begin; p < end; p++ {
		slots = append(slots, int(pages[p/s.pageSize])*s.pageSize+p%s.pageSize)
	}
	return pages, slots
}

// ends is the memory of both ends of a transfer.
type ends struct{ from, to Model }

// sameKV says whether the destination's slots hold what the source holds for each position from
// begin on, each slot of each layer was written once, and no other was written at all.
func (e ends) sameKV(t *testing.T, begin int, pages []kvcache.PageID, slots []int) {
	t.Helper()
	src, dst := pagesOf(e.from), pagesOf(e.to)
	written := 0
	for layer := range src.layers {
		for i, slot := range slots {
			if slot == skipped {
				continue
			}
			p := begin + i
			source := int(pages[p/src.pageSize])*src.pageSize + p%src.pageSize
			if !bytes.Equal(src.slot(layer, source), dst.slot(layer, slot)) {
				t.Fatalf("layer %d position %d: slot %d is not slot %d", layer, p, slot, source)
			}
			if n := dst.writes[[2]int{layer, slot}]; n != 1 {
				t.Fatalf("layer %d slot %d was written %d times", layer, slot, n)
			}
			written++
		}
	}
	if len(dst.writes) != written {
		t.Fatalf("%d slots were written, %d are reserved", len(dst.writes), written)
	}
}

// slot is the key and the value of one slot.
func (p *fakePages) slot(layer, slot int) []byte {
	from, to := slot*p.half, (slot+1)*p.half
	return slices.Concat(p.keys[layer][from:to], p.values[layer][from:to])
}
