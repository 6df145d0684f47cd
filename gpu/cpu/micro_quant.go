package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// Quantised weights are computed chunk by chunk: a chunk of two panels is unpacked to bytes and
// float32 scales that stay in the first-level cache, and all rows of a task pass over it. The
// chains go on from chunk to chunk through the outputs, which changes no bit.

// superBlocks is how many blocks of 32 steps one stored block of the longest formats has, and
// chunkBlocks the most that a chunk has of the others: two panels of them, and what passes over
// them, still fit into the first-level cache.
const (
	superBlocks = superLength / quantBlock
	chunkBlocks = 18
)

// chunk is some steps of one panel, unpacked. asm knows the offsets of the fields.
type chunk struct {
	q     [chunkBlocks][8][panelRows][4]uint8 // unsigned, in groups of four steps
	scale [2 * chunkBlocks][panelRows]float32 // of 32 steps each; in kindHalf of 16
	least [chunkBlocks][panelRows]float32     // kindLeast only
	// In kindByte, where quantMicro.magnitudes says so, q are the integers without their signs,
	// negative is -1 where they had one, and lack the sum of the magnitudes there.
	negative [chunkBlocks][8][panelRows][4]int8
	lack     [chunkBlocks][panelRows]int32
}

// unpackCall asks for blocks [0, blocks) of a chunk.
type unpackCall struct {
	blocks int
	q      unsafe.Pointer // the panel's integers from the chunk on
	scales unsafe.Pointer // the panel's scales from the chunk on
	to     *chunk
	next   uintptr // from its integers to those that are asked for meanwhile
}

// quantTile is one call of a kernel with 8-bit activations: pairPanels panels by some rows, over
// the blocks of one chunk. Distances are in bytes; asm/quant.go knows the offsets of the fields.
type quantTile struct {
	blocks int
	a      unsafe.Pointer // int8
	lda    uintptr
	meta   unsafe.Pointer // quantMeta, one a block
	ldm    uintptr
	q      unsafe.Pointer // integers of the chunk
	qPanel uintptr        // to those of the second panel
	s      unsafe.Pointer // its scales
	m      unsafe.Pointer // its least values; of magnitudes what they lack
	sPanel uintptr        // to those of the second panel
	c      unsafe.Pointer // float32
	ldc    uintptr
	init   unsafe.Pointer
	ldi    uintptr
	tiles  int // how many such tiles one below the other; the call's pointers move along
}

// quantMeta belongs to a block of activations in integers a.
type quantMeta struct {
	scale float32  // an activation is scale·a
	sum   float32  // scale·Σa
	start [2]int32 // -offset·Σa; in kindHalf of the first and of the second 16
}

// quantTable is kernels by kind and rows.
type quantTable [quantKinds]quantTiles

// quantTiles are kernels by rows.
type quantTiles [quantRows + 1]func(*quantTile)

// quantMicro are the inner loops for quantised weights.
type quantMicro struct {
	tall  int // rows of a tile; kernels of this height take several tiles
	tiles quantTable
	// small are the tiles of integers below 16, of smallTall rows; empty where they would be tiles.
	small     quantTable
	smallTall int
	unpack    [gpu.DTypes]func(*unpackCall)
	// magnitudes: the kernels of kindByte take chunks with magnitudes and signs apart.
	magnitudes bool
	floats     [quantKinds]func(to *[superLength][panelRows]float32, c *floatCall)
	quantise   func(*quantiseCall)
	// rows compute a few rows by one panel as it is packed, from end to end: nil where there are
	// none. q and s of the call are the panel's own.
	rows quantRowTable
	few  int // up to how many rows they are the faster way
}

// tilesOf are the kernels for a format, and the rows of the tallest.
func (m *quantMicro) tilesOf(f format) (*quantTiles, int) {
	if f.bits == 4 && m.smallTall > 0 {
		return &m.small[f.kind], m.smallTall
	}
	return &m.tiles[f.kind], m.tall
}

// quantRowTable is kernels by type and rows.
type quantRowTable [gpu.DTypes][maxQuantRows + 1]func(*quantTile)

// maxQuantRows is the most rows of the kernels that read packed panels.
const maxQuantRows = 8

// quantRows is the most rows of any quantTile kernel.
const quantRows = 6

// floatCall asks for the values of a chunk's numbers.
type floatCall struct {
	blocks int
	offset int32
	q      unsafe.Pointer
	from   *chunk // scales and least values
}

// goQuantMicro is the set for every machine.
func goQuantMicro() quantMicro {
	m := quantMicro{tall: 4, quantise: quantiseRow}
	for kind := range m.tiles {
		for rows := 1; rows <= m.tall; rows++ {
			m.tiles[kind][rows] = func(t *quantTile) { quantTileGo(t, quantKind(kind), rows) }
		}
		m.floats[kind] = func(to *[superLength][panelRows]float32, c *floatCall) {
			floatsGo(to, c, quantKind(kind))
		}
	}
	for dtype := gpu.Q8_0; dtype < gpu.DTypes; dtype++ {
		m.unpack[dtype] = func(c *unpackCall) { unpackGo(c, dtype) }
	}
	return m
}

// unpackGo is the unpack kernel in plain Go. Bytes stay where they are.
func unpackGo(c *unpackCall, dtype gpu.DType) {
	f := formats[dtype]
	if f.bits < 8 {
		var q [quantBlock]uint8
		for b := range c.blocks {
			from := unsafe.Slice((*byte)(unsafe.Add(c.q, b*f.quantBytes())), f.quantBytes())
			for lane := range panelRows {
				f.take(q[:], from, lane)
				for i, v := range q {
					c.to.q[b][i/4][lane][i%4] = v
				}
			}
		}
	}
	length, _ := dtype.Block()
	stored := unsafe.Slice((*byte)(c.scales), c.blocks*quantBlock/length*scaleBytes(dtype))
	var s super
	for lane := range panelRows {
		for b := range c.blocks {
			in := b % (length / quantBlock)
			takeScales(&s, dtype, stored[b*quantBlock/length*scaleBytes(dtype):], lane)
			if f.kind == kindHalf {
				c.to.scale[2*b][lane] = s.scaleAt(dtype, 2*in)
				c.to.scale[2*b+1][lane] = s.scaleAt(dtype, 2*in+1)
				continue
			}
			c.to.scale[b][lane] = s.scaleAt(dtype, 2*in)
			if f.kind == kindLeast {
				c.to.least[b][lane] = s.leastAt(dtype, in)
			}
		}
	}
}

// quantTileGo is the kernel with 8-bit activations in plain Go.
func quantTileGo(t *quantTile, kind quantKind, rows int) {
	for r := range uintptr(rows * t.tiles) {
		for p := range uintptr(pairPanels) {
			sums := *(*[panelRows]float32)(unsafe.Add(t.init, r*t.ldi+p*panelRows*4))
			for b := range t.blocks {
				quantBlockGo(t, &sums, kind, position{r, p, uintptr(b)})
			}
			*(*[panelRows]float32)(unsafe.Add(t.c, r*t.ldc+p*panelRows*4)) = sums
		}
	}
}

// position is a row, a panel and a block of a quantTile.
type position struct{ row, panel, block uintptr }

func quantBlockGo(t *quantTile, sums *[panelRows]float32, kind quantKind, at position) {
	a := (*[8][4]int8)(unsafe.Add(t.a, at.row*t.lda+at.block*quantBlock))
	q := (*[8][panelRows][4]uint8)(unsafe.Add(t.q, at.panel*t.qPanel+at.block*8*groupBytes))
	meta := (*quantMeta)(unsafe.Add(t.meta, at.row*t.ldm+at.block*unsafe.Sizeof(quantMeta{})))
	halves := uintptr(1)
	if kind == kindHalf {
		halves = 2
	}
	for h := range halves {
		s := (*[panelRows]float32)(unsafe.Add(t.s,
			at.panel*t.sPanel+(at.block*halves+h)*panelRows*4))
		for lane := range sums {
			dot := meta.start[h]
			for g := h * 4; g < (h+1)*8/halves; g++ {
				w, x := &q[g][lane], &a[g]
				dot += int32(w[0])*int32(x[0]) + int32(w[1])*int32(x[1]) +
					int32(w[2])*int32(x[2]) + int32(w[3])*int32(x[3])
			}
			sums[lane] = fma32(float32(dot), float32(s[lane]*meta.scale), sums[lane])
		}
	}
	if kind == kindLeast {
		m := (*[panelRows]float32)(unsafe.Add(t.m, at.panel*t.sPanel+at.block*panelRows*4))
		for lane := range sums {
			sums[lane] = fma32(meta.sum, m[lane], sums[lane])
		}
	}
}

// floatsGo writes the values of a chunk's numbers, step by step as in a panel of float32.
func floatsGo(to *[superLength][panelRows]float32, c *floatCall, kind quantKind) {
	for k := range c.blocks * quantBlock {
		q := (*[panelRows][4]uint8)(unsafe.Add(c.q, k/4*groupBytes))
		scale := &c.from.scale[k/quantBlock]
		if kind == kindHalf {
			scale = &c.from.scale[k/16]
		}
		for lane := range panelRows {
			x := float32(scale[lane] * float32(int32(q[lane][k%4])-c.offset))
			if kind == kindLeast {
				x += c.from.least[k/quantBlock][lane]
			}
			to[k][lane] = x
		}
	}
}

// quantiseCall asks for one row of activations in integers.
type quantiseCall struct {
	blocks int
	x      *float32
	q      *int8
	meta   *quantMeta // one a block
	offset int
	halves int // 1: two starts a block; 0: one
}

// quantiseRow is the plain form.
func quantiseRow(c *quantiseCall) {
	x := unsafe.Slice(c.x, c.blocks*quantBlock)
	q := unsafe.Slice(c.q, c.blocks*quantBlock)
	for b := range c.blocks {
		to := (*[quantBlock]int8)(q[b*quantBlock:])
		scale, sum := quantiseBlock(to, (*[quantBlock]float32)(x[b*quantBlock:]))
		meta := &unsafe.Slice(c.meta, c.blocks)[b]
		*meta = quantMeta{scale: scale, sum: float32(float32(sum) * scale)}
		if c.halves == 0 {
			meta.start[0] = -int32(c.offset) * sum
			continue
		}
		first := int32(0)
		for _, v := range to[:quantBlock/2] {
			first += int32(v)
		}
		meta.start = [2]int32{-int32(c.offset) * first, -int32(c.offset) * (sum - first)}
	}
}
