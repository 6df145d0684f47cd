package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// tdpRows is the most rows of a tile kernel of the class tdp.
const tdpRows = 12

// tdpTile is one call of a kernel of the class tdp: c[r][j] = init[r][j] + what stretches of
// tdpStep k add, for columns j of one panel. Planes are float32 that hold bfloat16. Distances are
// in bytes; asm/tdp.go knows the offsets of the fields.
type tdpTile struct {
	stretches int
	x         unsafe.Pointer // the first plane of the first row
	ldx       uintptr        // from row to row of x
	w         unsafe.Pointer // the first plane, [k][panelRows]; of the one-row kernels the panel
	c         unsafe.Pointer
	ldc       uintptr
	init      unsafe.Pointer
	ldi       uintptr
	products  int
	offsets   *tdpOffsets // as many, from the first planes
	// The processor's mode: before the call, which the kernel keeps here, and the one that flushes.
	mode  [2]uint32
	plane uintptr // from plane to plane of x, for the one-row kernels
	panel uintptr // from panel to panel of w, for those too
}

// tdpOffsets are where the planes of a product begin.
type tdpOffsets struct{ x, w uintptr }

// flushMode is MXCSR with everything masked, subnormal operands and results taken for zeros.
const flushMode = 0x9fc0

// tdpSplit asks for the planes of n activations, plane bytes apart.
type tdpSplit struct {
	n      int
	from   unsafe.Pointer
	to     unsafe.Pointer
	plane  uintptr
	planes int
}

// tdpWiden asks for the planes of n steps of a panel.
type tdpWiden struct {
	n     int
	from  unsafe.Pointer
	to    unsafe.Pointer
	plane uintptr
}

// tdpMicro are the inner loops of the class tdp.
type tdpMicro struct {
	tall  int // the most rows of a tile
	tiles [tdpRows + 1]func(*tdpTile)
	// wide are one-row kernels that read packed panels, so many at once: nil where there are none.
	wide       [plainTypes]func(*tdpTile)
	widePanels [plainTypes]int
	widen      [plainTypes]func(*tdpWiden)
	split      func(*tdpSplit)
	amx        *amxMicro // nil where the processor has no tiles
}

// goTDPMicro is the set for every machine.
func goTDPMicro() tdpMicro {
	m := tdpMicro{tall: 4, split: tdpSplitGo}
	for rows := 1; rows <= m.tall; rows++ {
		m.tiles[rows] = func(t *tdpTile) { tdpTileGo(t, rows) }
	}
	for dtype := range m.widen {
		widen, planes := wideners[dtype], tdpForms[dtype].wPlanes
		m.widen[dtype] = func(c *tdpWiden) { tdpWidenGo(c, planes, gpu.DType(dtype), widen) }
	}
	return m
}

// tdpTileGo is the tile kernel in plain Go.
func tdpTileGo(t *tdpTile, rows int) {
	offsets := unsafe.Slice(t.offsets, t.products)
	for r := range uintptr(rows) {
		sums := *(*[panelRows]float32)(unsafe.Add(t.init, r*t.ldi))
		for s := range uintptr(t.stretches) {
			x := unsafe.Add(t.x, r*t.ldx+s*tdpStep*4)
			w := unsafe.Add(t.w, s*tdpStep*panelRows*4)
			for _, o := range offsets {
				tdpStretch(&sums, (*[tdpStep]float32)(unsafe.Add(x, o.x)),
					(*[tdpStep][panelRows]float32)(unsafe.Add(w, o.w)))
			}
		}
		*(*[panelRows]float32)(unsafe.Add(t.c, r*t.ldc)) = sums
	}
}

// tdpStretch adds one product of planes over one stretch.
func tdpStretch(
	sums *[panelRows]float32, x *[tdpStep]float32, w *[tdpStep][panelRows]float32,
) {
	for lane := range sums {
		even, odd := float32(0), float32(0)
		for i := 0; i < tdpStep; i += 2 {
			even = fmaFlush(x[i], w[i][lane], even)
			odd = fmaFlush(x[i+1], w[i+1][lane], odd)
		}
		sums[lane] = addFlush(sums[lane], addFlush(even, odd))
	}
}

// tdpSplitGo is the kernel for activations in plain Go.
func tdpSplitGo(c *tdpSplit) {
	var planes [maxPlanes]float32
	for i := range uintptr(c.n) {
		splitActivation(planes[:c.planes], *(*float32)(unsafe.Add(c.from, i*4)))
		for p := range uintptr(c.planes) {
			*(*float32)(unsafe.Add(c.to, p*c.plane+i*4)) = planes[p]
		}
	}
}

// tdpWidenGo is the kernel for weights in plain Go.
func tdpWidenGo(c *tdpWiden, planes int, dtype gpu.DType, widen func(unsafe.Pointer) lanes) {
	var split [maxPlanes]float32
	for i := range c.n {
		step := widen(unsafe.Add(c.from, i*panelRows*dtype.Bytes()))
		for lane, w := range step {
			splitWeight(split[:planes], float32(w))
			for p := range planes {
				*(*float32)(unsafe.Add(c.to, uintptr(p)*c.plane+
					uintptr(i*panelRows+lane)*4)) = split[p]
			}
		}
	}
}
