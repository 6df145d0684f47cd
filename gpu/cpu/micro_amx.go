package cpu

import (
	"encoding/binary"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// amxRows is how many rows a call of a tile kernel takes at most, two blocks of amxBlockRows.
const (
	amxRows      = 2 * amxBlockRows
	amxBlockRows = 16
	tileBytes    = 1024 // of 16 rows of 64 bytes
)

// amxCall is one call of a tile kernel: up to amxRows rows by two panels. Planes are bfloat16 in
// tiles, one for each stretch: of activations [16 rows][32 k], of weights [16 pairs of k][16
// columns][2]. Distances are in bytes; asm/amx.go knows the offsets of the fields.
type amxCall struct {
	config    *tileConfig
	stretches int
	x         unsafe.Pointer // the first plane of the first block of rows
	xNext     uintptr        // to the second block of rows
	w         unsafe.Pointer // the first plane of the first panel
	wNext     uintptr        // to the second panel
	c         unsafe.Pointer // float32
	ldc       uintptr
	init      unsafe.Pointer
	ldi       uintptr
	xPlane    uintptr // from plane to plane
	wPlane    uintptr
}

// tileConfig is the operand of LDTILECFG: the palette, then bytes of a row and rows of each tile.
type tileConfig [64]byte

// set describes eight tiles for so many rows of outputs: T0, T1 and T4 have those of the first
// block, T2, T3 and T5 the others.
func (c *tileConfig) set(rows int) {
	const columnsAt, rowsAt = 16, 48
	*c = tileConfig{0: 1}
	for tile, n := range [8]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 1, 5: 2} {
		height := amxBlockRows
		switch n {
		case 1:
			height = min(rows, amxBlockRows)
		case 2:
			height = rows - amxBlockRows
		}
		if height > 0 {
			binary.LittleEndian.PutUint16(c[columnsAt+2*tile:], 64)
			c[rowsAt+tile] = byte(height)
		}
	}
}

// amxMicro are the inner loops on tiles; without them there are none.
type amxMicro struct {
	tiles [plainTypes][2]func(*amxCall) // by type and blocks of rows
	widen [plainTypes]func(*tdpWiden)
	split func(*tdpSplit)
}

// amxWidenGo makes planes of n steps of a panel; the last stretch is filled up with zeros.
func amxWidenGo(c *tdpWiden, dtype gpu.DType) {
	form, step := &tdpForms[dtype], panelRows*dtype.Bytes()
	var split [maxPlanes]float32
	for k := range (c.n + tdpStep - 1) / tdpStep * tdpStep {
		var w lanes
		if k < c.n {
			w = wideners[dtype](unsafe.Add(c.from, k*step))
		}
		for lane := range panelRows {
			splitWeight(split[:form.wPlanes], float32(w[lane]))
			for p := range form.wPlanes {
				at := uintptr(p)*c.plane + uintptr(k/2*panelRows+lane)*4 + uintptr(k%2)*2
				*(*uint16)(unsafe.Add(c.to, at)) = floatToBfloat(split[p])
			}
		}
	}
}

// amxSplitGo makes planes of a row of activations: number k in row 0 of tile k/tdpStep. A stretch
// that n ends in is filled up with zeros.
func amxSplitGo(c *tdpSplit) {
	var planes [maxPlanes]float32
	for k := range (c.n + tdpStep - 1) / tdpStep * tdpStep {
		clear(planes[:])
		if k < c.n {
			splitActivation(planes[:c.planes], *(*float32)(unsafe.Add(c.from, k*4)))
		}
		for p := range uintptr(c.planes) {
			*(*uint16)(unsafe.Add(c.to, p*c.plane+uintptr(k/tdpStep*tileBytes+k%tdpStep*2))) =
				floatToBfloat(planes[p])
		}
	}
}
