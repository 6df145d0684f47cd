package cpu

import (
	"math"
	"unsafe"
)

// agrees says whether this processor's products of pairs give the bits of the class bf16: tiles of
// the tallest, of one row and of one row by many panels, on ordinary numbers and on those around
// 2⁻¹²⁶, against the plain form. As with tiles of AMX, it is asked before they are used at all.
func (d *dotMicro) agrees() bool {
	for _, scale := range []float32{1, 0x1p-62, 0x1p-64} {
		if !d.agreesOn(d.pairs[tileRows], dotTrial{tileRows, pairPanels, scale}) ||
			!d.agreesOn(d.tiles[1], dotTrial{1, 1, scale}) ||
			!d.agreesOn(d.wide, dotTrial{1, widePanels, scale}) {
			return false
		}
	}
	return true
}

// dotTrial is a product of so many rows and panels, of numbers up to a scale.
type dotTrial struct {
	rows, panels int
	scale        float32
}

func (d *dotMicro) agreesOn(kernel tileKernel, t dotTrial) bool {
	const k, pairs = 45, 23
	width := t.panels * panelRows
	x, w := trial(t.rows*k), trial(width*k)
	for i := range x {
		x[i] *= t.scale
	}
	for i := range w {
		w[i] = bfloatToFloat(floatToBfloat(w[i] * t.scale))
	}
	rounded := newMemory(4 * t.rows * pairs)
	for r := range t.rows {
		d.round(&pairCall{n: k, from: address(x, r*k), to: rounded.at(4 * r * pairs)})
	}
	panels := newMemory(4 * width * pairs)
	to := numbers[uint16](panels)
	for column := range width {
		at := column/panelRows*pairs*panelRows + column%panelRows
		for i := range 2 * pairs {
			bits := uint16(padWeight)
			if i < k {
				bits = floatToBfloat(w[column*k+i])
			}
			to[pairPlace(at, i)] = bits
		}
	}
	out, init := newMemory(4*t.rows*width), trial(width)
	for i := range init {
		init[i] *= t.scale * t.scale
	}
	kernel(&tile{k: pairs, a: rounded.at(0), lda: 4 * pairs, b: panels.at(0),
		panel: 4 * pairs * panelRows, c: out.at(0), ldc: uintptr(4 * width),
		init: unsafe.Pointer(&init[0])})
	for i, got := range out.floats()[:t.rows*width] {
		row, column := i/width, i%width
		want := bfloatSum(x[row*k:][:k], w[column*k:][:k], init[column])
		if math.Float32bits(got) != math.Float32bits(want) {
			return false
		}
	}
	return true
}
