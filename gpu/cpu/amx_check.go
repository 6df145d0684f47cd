package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// agrees says whether the tiles of this processor give the bits of the class tdp: a product of each
// type, of one and of two blocks of rows, against the plain form. It is asked before the tiles are
// used at all, because no test can know the processor that an engine starts on.
func (m *amxMicro) agrees() bool {
	for dtype := range plainTypes {
		for _, rows := range []int{5, amxRows - 3} {
			if !m.agreesOn(dtype, rows) {
				return false
			}
		}
	}
	return true
}

// trial are numbers between -1 and 1, always the same ones.
func trial(n int) []float32 {
	x, seed := make([]float32, n), uint32(n)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(int32(seed)>>8) / (1 << 23)
	}
	return x
}

func (m *amxMicro) agreesOn(dtype gpu.DType, rows int) bool {
	const k, width, stretches = 2 * tdpStep, pairPanels * panelRows, 2
	form := &tdpForms[dtype]
	x, w := trial(rows*k), storedTrial(dtype, k*width)
	tiles := newMemory(form.xPlanes * pairPanels * stretches * tileBytes)
	planes := newMemory(pairPanels * maxPlanes * stretches * tileBytes)
	out := newMemory(4 * amxRows * width)
	var config tileConfig
	config.set(rows)
	const block = stretches * tileBytes
	for r := range rows {
		m.split(&tdpSplit{n: k, from: address(x, r*k),
			to:    tiles.at(r/amxBlockRows*block + r%amxBlockRows*2*tdpStep),
			plane: pairPanels * block, planes: form.xPlanes})
	}
	for p := range pairPanels {
		m.widen[dtype](&tdpWiden{n: k, from: w.at(p * k * panelRows * dtype.Bytes()),
			to: planes.at(p * maxPlanes * block), plane: block})
	}
	m.tiles[dtype][(rows-1)/amxBlockRows](&amxCall{config: &config, stretches: stretches,
		x: tiles.at(0), xNext: block, w: planes.at(0), wNext: maxPlanes * block,
		c: out.at(0), ldc: 4 * width, init: out.at(0), ldi: 4 * width,
		xPlane: pairPanels * block, wPlane: block})
	for column := range width {
		values := make([]float32, k)
		for i := range values {
			step := w.at((column/panelRows*k + i) * panelRows * dtype.Bytes())
			values[i] = float32(wideners[dtype](step)[column%panelRows])
		}
		weights := weightPlanes(dtype, values)
		for r := range rows {
			want := tdpSum(form.products, activationPlanes(dtype, x[r*k:][:k]), weights, 0)
			got := *(*float32)(unsafe.Add(out.at(0), 4*(r*width+column)))
			if math.Float32bits(got) != math.Float32bits(want) {
				return false
			}
		}
	}
	return true
}

// storedTrial are such numbers as a type stores them.
func storedTrial(dtype gpu.DType, n int) *memory {
	to := newMemory(n * dtype.Bytes())
	for i, x := range trial(n) {
		switch dtype {
		case gpu.F32:
			binary.LittleEndian.PutUint32(to.bytes[4*i:], math.Float32bits(x))
		case gpu.F16:
			binary.LittleEndian.PutUint16(to.bytes[2*i:], floatToHalf(x))
		case gpu.BF16:
			binary.LittleEndian.PutUint16(to.bytes[2*i:], floatToBfloat(x))
		}
	}
	return to
}
