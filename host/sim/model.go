package sim

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// vocabulary is how many tokens the fingerprint model knows.
const vocabulary = 37

// slotBytes is what one token's key and value take in one layer.
const slotBytes = 16

// shape is what all instances of a world must have in common.
type shape struct {
	PageSize, Layers int
	// Window is how many tokens, itself included, a token sees, 0 for all; Sinks how many first
	// ones it sees beside them.
	Window, Sinks int
}

func (s shape) sees(position, key int) bool {
	return s.Window == 0 || key > position-s.Window || key < s.Sinks
}

// entry is the key and the value of one position in one layer.
type entry struct{ key, value uint64 }

func mix(a, b uint64) uint64 {
	x := a*0x9E3779B97F4A7C15 ^ b + 0x7F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return x ^ x>>32
}

// hidden is how wide the vectors are that may come in place of tokens.
const hidden = 2

// codeOf is what a position's input is to the model: a token.
func codeOf(token int32) uint64 { return uint64(token) + 1 }

// codeOfVector is the same for the row of an item of vectors.
func codeOfVector(values []float32, row int) uint64 {
	code := uint64(1) << 63
	for _, v := range values[row*hidden : (row+1)*hidden] {
		code = mix(code, uint64(math.Float32bits(v)))
	}
	return code
}

// entryAt is what a position holds: a fingerprint of its input and of what it sees. Without a
// window the position before stands for all before it.
func (s shape) entryAt(layer, position int, code uint64, read func(int) entry) entry {
	acc := mix(uint64(layer)+1, uint64(position))
	first := position - 1
	if s.Window > 0 {
		first = 0
	}
	for key := max(first, 0); key < position; key++ {
		if s.sees(position, key) {
			e := read(key)
			acc = mix(mix(acc, e.key), e.value)
		}
	}
	key := mix(acc, code)
	return entry{key, mix(key, 0xABCDEF)}
}

// row fills the logits that a position makes of all that it sees in all layers.
func (s shape) row(row []float32, position int, read func(layer, i int) entry) {
	acc := uint64(7)
	for layer := range s.Layers {
		for key := range position + 1 {
			if s.sees(position, key) {
				e := read(layer, key)
				acc = mix(mix(acc, e.key), e.value)
			}
		}
	}
	for i := range row {
		row[i] = float32(mix(acc, uint64(i))>>40) / (1 << 22)
	}
}

// model is the fingerprint model of one instance: its KV cache holds hashes of token prefixes, and
// the next token is a hash of the whole KV, read through the page table. Whatever goes wrong with a
// page (missing, stale, swapped, another's) becomes a wrong token. It is the engine's Runner and
// the transfer's Pages.
type model struct {
	shape
	slots   [][]entry // [layer][page*PageSize + offset]
	rows    [][]float32
	fail    error // of the next run
	crossed bool  // a planted bug: what arrives goes to another layer
	written map[kvcache.PageID]int
	// mayWrite says what is wrong with a write of the step to a page, of which it makes so many
	// copies before; mayReceive with one of a peer to slots.
	mayWrite   func(page kvcache.PageID, copies int) error
	mayReceive func(layer int, r kvcache.SlotRange) error
	poisoned   []bool // pages that nobody owns and that were spoiled
}

func newModel(s shape, pages int) *model {
	m := &model{shape: s, written: map[kvcache.PageID]int{}, poisoned: make([]bool, pages)}
	for range s.Layers {
		m.slots = append(m.slots, make([]entry, pages*s.PageSize))
	}
	return m
}

// violation is a broken invariant: it ends the run.
type violation struct{ error }

func broken(format string, args ...any) {
	panic(violation{fmt.Errorf(format, args...)})
}

func (m *model) slot(pages []kvcache.PageID, position int) int {
	page := pages[position/m.PageSize]
	if page == kvcache.None {
		broken("position %d is read and has slid out of the window", position)
	}
	return int(page)*m.PageSize + position%m.PageSize
}

// Run implements engine.Runner.
func (m *model) Run(b *batch.Batch) ([][]float32, error) {
	if err := m.fail; err != nil {
		m.fail = nil
		return nil, err
	}
	for _, c := range b.Copies {
		for layer := range m.slots {
			copy(m.slots[layer][int(c.To)*m.PageSize:][:c.Tokens],
				m.slots[layer][int(c.From)*m.PageSize:])
		}
	}
	m.claim(b)
	for layer := range m.slots {
		for i := range b.Items {
			m.append(&b.Items[i], layer)
		}
		if b.LayerDone != nil {
			b.LayerDone(layer)
		}
	}
	rows := 0
	for i := range b.Items {
		for k := range b.Items[i].Logits {
			if rows == len(m.rows) {
				m.rows = append(m.rows, make([]float32, vocabulary))
			}
			m.logits(&b.Items[i], k, m.rows[rows])
			rows++
		}
	}
	return m.rows[:rows], nil
}

// claim verifies that each page that the batch writes is written by one item, which may.
func (m *model) claim(b *batch.Batch) {
	clear(m.written)
	for k := range b.Items {
		item := &b.Items[k]
		end := item.Start + len(item.Tokens)
		if want := (end + m.PageSize - 1) / m.PageSize; len(item.Pages) != want {
			broken("item %d ends at %d and has %d pages, not %d", k, end, len(item.Pages), want)
		}
		for _, page := range item.Pages[item.Start/m.PageSize:] {
			if other, twice := m.written[page]; twice && other != k {
				broken("items %d and %d write to page %d", other, k, page)
			}
			m.written[page] = k
			copies := 0
			for _, c := range b.Copies {
				if c.From == page {
					copies++
				}
			}
			if err := m.mayWrite(page, copies); err != nil {
				broken("item %d: %v", k, err)
			}
		}
	}
}

func (m *model) append(item *batch.Item, layer int) {
	slots := m.slots[layer]
	read := func(i int) entry { return slots[m.slot(item.Pages, i)] }
	embeds := item.Embeds
	for i, token := range item.Tokens {
		at, code := item.Start+i, codeOf(token)
		for len(embeds) > 0 && at >= embeds[0].End() {
			embeds = embeds[1:]
		}
		switch {
		case len(embeds) > 0 && at >= embeds[0].Start:
			code = codeOfVector(embeds[0].Values, at-embeds[0].Start)
		case token < 0:
			broken("position %d is an item of vectors, of which none came", at)
		}
		slots[m.slot(item.Pages, at)] = m.entryAt(layer, at, code, read)
	}
}

func (m *model) logits(item *batch.Item, k int, row []float32) {
	at := item.Start + len(item.Tokens) - item.Logits + k
	m.row(row, at, func(layer, i int) entry { return m.slots[layer][m.slot(item.Pages, i)] })
}

// ReadPage implements transfer.Pages.
func (m *model) ReadPage(layer int, r kvcache.SlotRange, dst []byte) error {
	for i := range r.Count {
		e := m.slots[layer][int(r.Page)*m.PageSize+r.First+i]
		binary.LittleEndian.PutUint64(dst[8*i:], e.key)
		binary.LittleEndian.PutUint64(dst[8*(r.Count+i):], e.value)
	}
	return nil
}

// WritePage implements transfer.Pages.
func (m *model) WritePage(layer int, r kvcache.SlotRange, src []byte) error {
	if err := m.mayReceive(layer, r); err != nil {
		panic(violation{err})
	}
	if m.crossed {
		layer = (layer + 1) % m.Layers
	}
	for i := range r.Count {
		m.slots[layer][int(r.Page)*m.PageSize+r.First+i] = entry{
			key:   binary.LittleEndian.Uint64(src[8*i:]),
			value: binary.LittleEndian.Uint64(src[8*(r.Count+i):]),
		}
	}
	return nil
}

// poison overwrites a page that nobody owns: whoever reads it gets a wrong token.
func (m *model) poison(page kvcache.PageID) {
	for layer := range m.slots {
		for i := range m.PageSize {
			e := &m.slots[layer][int(page)*m.PageSize+i]
			e.key, e.value = mix(e.key, 1), mix(e.value, 2)
		}
	}
}

// verify says how an item's pages differ from what the position after it must see.
func (m *model) verify(item *batch.Item, text *text) error {
	end := item.Start + len(item.Tokens)
	for k, page := range item.Pages {
		first := k * m.PageSize
		for at := first; at < min(first+m.PageSize, end); at++ {
			if !m.sees(end, at) || page == kvcache.None {
				continue
			}
			if err := m.holds(page, at, at+1, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// holds says how a page's slots differ from what the positions from first on of a text must hold.
func (m *model) holds(page kvcache.PageID, first, end int, text *text) error {
	for layer := range m.slots {
		for at := first; at < end; at++ {
			slot := int(page)*m.PageSize + at%m.PageSize
			if m.slots[layer][slot] != text.entries[layer][at] {
				return fmt.Errorf("page %d does not hold position %d of layer %d", page, at, layer)
			}
		}
	}
	return nil
}
