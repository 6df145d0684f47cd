package cpu

import (
	"math"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// agrees says whether products of full bytes are exact on this processor, in tiles of every height
// and in the kernels for a few rows, against the plain form: on bytes of every value, and where
// sums are the largest there are. As with tiles of AMX, it is asked before they are used at all.
func (m *quantMicro) agrees() bool {
	plain := goQuantMicro()
	for _, extreme := range []bool{false, true} {
		c := newQuantTrial(extreme)
		for rows := range m.rows[gpu.Q8_0] {
			tile := rows <= m.tall && rows > 0
			if tile && !c.agreesOn(m.tiles[kindByte][rows], plain.tiles[kindByte][1], rows) {
				return false
			}
			if few := m.rows[gpu.Q8_0][rows]; few != nil && !c.agreesOnPacked(few, rows) {
				return false
			}
		}
	}
	return true
}

// quantTrial is a product of full bytes: a pair of panels, and rows of activations.
type quantTrial struct {
	chunk *chunk // the first panel's; both have its scales
	pair  []uint8
	x     []int8
	meta  []quantMeta
}

const (
	trialBlocks = 3
	trialBytes  = trialBlocks * quantBlock * panelRows // of a panel
)

func newQuantTrial(extreme bool) *quantTrial {
	scales := (trialBlocks*panelRows*2 + 63) &^ 63
	c := &quantTrial{chunk: (*chunk)(newMemory(int(unsafe.Sizeof(chunk{}))).at(0)),
		pair: newMemory(pairPanels*trialBytes + scales).bytes,
		x:    make([]int8, maxQuantRows*trialBlocks*quantBlock),
		meta: make([]quantMeta, maxQuantRows*trialBlocks)}
	for i := range c.pair[:pairPanels*trialBytes] {
		c.pair[i] = uint8(i * 37)
		if extreme {
			c.pair[i] = 255
		}
	}
	for i := range c.x {
		if c.x[i] = int8(i*29%255 - 127); extreme {
			c.x[i] = int8(127 - 254*(i/quantBlock%2))
		}
	}
	for i := range c.meta {
		sum := int32(0)
		for _, x := range c.x[i*quantBlock:][:quantBlock] {
			sum += int32(x)
		}
		c.meta[i] = quantMeta{scale: 1 / float32(1+i%7), start: [2]int32{-128 * sum}}
	}
	half := numbers[uint16](&memory{bytes: c.pair[pairPanels*trialBytes:]})
	for i := range trialBlocks * panelRows {
		half[i] = floatToHalf(1 / float32(3+i%11))
		c.chunk.scale[i/panelRows][i%panelRows] = halfToFloat(half[i])
	}
	return c
}

// call is the product of so many rows in tiles of one such, to out.
func (c *quantTrial) call(out []float32, tiles int) quantTile {
	const width = pairPanels * panelRows
	return quantTile{blocks: trialBlocks, a: unsafe.Pointer(&c.x[0]),
		lda: trialBlocks * quantBlock, meta: unsafe.Pointer(&c.meta[0]),
		ldm: trialBlocks * unsafe.Sizeof(quantMeta{}), q: unsafe.Pointer(&c.pair[0]),
		qPanel: trialBytes, s: unsafe.Pointer(&c.chunk.scale), m: unsafe.Pointer(&c.chunk.least),
		c: unsafe.Pointer(&out[0]), ldc: 4 * width, init: unsafe.Pointer(&out[0]), ldi: 4 * width,
		tiles: tiles}
}

// agreesOn compares a kernel for so many rows with a plain one for one row.
func (c *quantTrial) agreesOn(kernel, plain func(*quantTile), rows int) bool {
	got, want := c.outputs(), c.outputs()
	call := c.call(got, 1)
	kernel(&call)
	call = c.call(want, rows)
	plain(&call)
	return equalBits(got, want)
}

// agreesOnPacked compares a kernel that reads packed panels, of which the second of the pair is
// followed by its scales.
func (c *quantTrial) agreesOnPacked(kernel func(*quantTile), rows int) bool {
	got, want := c.outputs(), c.outputs()
	call := c.call(got, 1)
	call.q = unsafe.Pointer(&c.pair[trialBytes])
	call.s = unsafe.Pointer(&c.pair[pairPanels*trialBytes])
	kernel(&call)
	for r := range rows {
		call = c.call(want[r*pairPanels*panelRows:], 1)
		call.q, call.a = unsafe.Pointer(&c.pair[trialBytes]), unsafe.Pointer(
			&c.x[r*trialBlocks*quantBlock])
		call.meta = unsafe.Pointer(&c.meta[r*trialBlocks])
		sums := (*[panelRows]float32)(call.c)
		for b := range uintptr(trialBlocks) {
			quantBlockGo(&call, sums, kindByte, position{block: b})
		}
	}
	return equalBits(got, want)
}

// outputs are where chains start, and end.
func (c *quantTrial) outputs() []float32 { return trial(maxQuantRows * pairPanels * panelRows) }

func equalBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}
