package cpu

import (
	"slices"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// quantInputs are the activations of one product in 8-bit integers, row after row.
type quantInputs struct {
	q    []int8
	meta []quantMeta // one a block
}

// grow makes room for so many rows. It allocates only what no earlier call had.
func (q *quantInputs) grow(rows, cols int) {
	blocks := rows * cols / quantBlock
	q.q = slices.Grow(q.q[:0], rows*cols)[:rows*cols]
	q.meta = slices.Grow(q.meta[:0], blocks)[:blocks]
}

// quantMatMul is a product with a quantised weight.
func (d *Device) quantMatMul(c matmulCall) {
	format := formats[c.w.dtype]
	j := &d.quantMatmul
	j.matmulCall, j.format, j.integers = c, format, d.class.int8
	if j.integers {
		d.inputs.grow(c.rows, c.w.cols)
		q := &d.quantiseRows
		*q = quantiseJob{d: d, x: c.x, cols: c.w.cols, rows: c.rows, format: format}
		tasks, rows := d.split(c.rows, 2*c.w.cols)
		q.rowsPerTask = rows
		d.pool.run(tasks, q)
		*q = quantiseJob{}
	}
	j.cut()
	d.pool.run(j.tasks(), j)
	j.matmulCall = matmulCall{}
}

// quantiseJob turns rows of activations into integers.
type quantiseJob struct {
	d           *Device
	x           []float32
	rows, cols  int
	format      format
	rowsPerTask int
}

func (j *quantiseJob) do(worker, task int) {
	in, call := &j.d.inputs, &j.d.scratch[worker].quantise
	blocks, halves := j.cols/quantBlock, 0
	if j.format.kind == kindHalf {
		halves = 1
	}
	first := task * j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, j.rows); r++ {
		*call = quantiseCall{blocks: blocks, offset: j.format.offset, halves: halves,
			x: &j.x[r*j.cols], q: &in.q[r*j.cols], meta: &in.meta[r*blocks]}
		j.d.micro.quant.quantise(call)
	}
	*call = quantiseCall{}
}

// quantScratch is what one worker needs for quantised weights: chunks of the two panels under way.
// There are no Go pointers in it.
type quantScratch struct {
	chunks [pairPanels]chunk
	floats [pairPanels][superLength][panelRows]float32
	out    [tileRows][pairPanels * panelRows]float32 // of panels that dst has no room for
}

// quantMatmulJob is a product with a quantised weight.
type quantMatmulJob struct {
	matmulCall
	format   format
	integers bool        // the activations are d.inputs
	kernels  *quantTiles // of tiles of integers
	chunk    int         // blocks of a chunk
}

// quantBlockRows is the most rows of a block: every block unpacks the weights for itself.
const quantBlockRows = 512

// cut chooses the tasks, of whole pairs of panels, and chunks of about equal length: every one but
// the first takes up the chains from memory.
func (j *quantMatmulJob) cut() {
	j.chunk = superBlocks
	if length, _ := j.w.dtype.Block(); j.integers && length == quantBlock {
		blocks := j.w.cols / quantBlock
		chunks := (blocks + chunkBlocks - 1) / chunkBlocks
		j.chunk = (blocks + chunks - 1) / chunks
	}
	tall := j.d.micro.tall
	if j.integers {
		j.kernels, tall = j.d.micro.quant.tilesOf(j.format)
	}
	j.matmulCall.cut(tall, quantBlockRows)
	j.panelsPerTask = (j.panelsPerTask + pairPanels - 1) / pairPanels * pairPanels
	j.panelTasks = (j.panels + j.panelsPerTask - 1) / j.panelsPerTask
}

func (j *quantMatmulJob) do(worker, task int) {
	s := j.d.scratch[worker]
	defer s.forget()
	t := j.area(task)
	if j.integers && t.lastRow-t.firstRow <= j.d.micro.quant.few {
		for panel := t.firstPanel; panel < t.lastPanel; panel++ {
			j.panel(s, panel, t)
		}
		return
	}
	for panel := t.firstPanel; panel < t.lastPanel; panel += pairPanels {
		for block := 0; block < j.w.cols/quantBlock; block += j.chunk {
			c := quantChunk{j: j, s: s, panel: panel, block: block}
			c.blocks = min(j.chunk, j.w.cols/quantBlock-block)
			c.unpack()
			for row := t.firstRow; row < t.lastRow; {
				row += c.tile(row, t.lastRow-row)
			}
		}
	}
}

// panel computes all rows of a task by one panel, as it is packed.
func (j *quantMatmulJob) panel(s *scratch, panel int, t area) {
	in, cols, call := &j.d.inputs, j.w.cols, &s.tile
	kernels, blocks := &j.d.micro.quant.rows[j.w.dtype], cols/quantBlock
	to := j.columns(panel, 1)
	for row := t.firstRow; row < t.lastRow; {
		rows := min(t.lastRow-row, maxQuantRows)
		for kernels[rows] == nil {
			rows--
		}
		e := ends{j: j, q: s.quant, row: row, rows: rows, to: to, width: panelRows}
		e.open()
		*call = quantTile{
			blocks: blocks, a: unsafe.Pointer(&in.q[row*cols]), lda: uintptr(cols),
			meta: unsafe.Pointer(&in.meta[row*blocks]),
			ldm:  uintptr(blocks) * unsafe.Sizeof(in.meta[0]),
			q:    j.w.panel(panel), s: unsafe.Add(j.w.panel(panel), j.w.scalesAt(0)),
			c: e.c, ldc: e.ldc, init: e.init, ldi: e.ldi,
		}
		kernels[rows](call)
		e.close()
		row += rows
	}
}

// quantChunk is a chunk of one pair of panels, blocks from block on.
type quantChunk struct {
	j             *quantMatmulJob
	s             *scratch
	panel         int
	block, blocks int
}

// unpack fills the worker's chunks. A pair beyond the last panel has that one twice.
func (c *quantChunk) unpack() {
	q := c.s.quant
	unpack, widen := &c.s.unpack, &c.s.widen
	for p := range pairPanels {
		*unpack = unpackCall{blocks: c.blocks, q: c.integers(p), to: &q.chunks[p]}
		unpack.next = c.next()
		length, _ := c.j.w.dtype.Block()
		unpack.scales = unsafe.Add(c.panelAt(p), c.j.w.scalesAt(c.block*quantBlock/length))
		c.j.d.micro.quant.unpack[c.j.w.dtype](unpack)
		if c.j.integers {
			continue
		}
		*widen = floatCall{blocks: c.blocks, offset: int32(c.j.format.offset),
			q: c.bytes(p), from: &q.chunks[p]}
		c.j.d.micro.quant.floats[c.j.format.kind](&q.floats[p], widen)
	}
}

// next is how far behind a panel's integers of the chunk those lie that will be unpacked after it:
// of the same panel, or of the next pair. Behind the last one that is no address of anything.
func (c *quantChunk) next() uintptr {
	bytes := c.j.format.quantBytes()
	if (c.block+c.blocks)*quantBlock < c.j.w.cols {
		return uintptr(c.blocks * bytes)
	}
	return uintptr(pairPanels*c.j.w.panelBytes() - c.block*bytes)
}

// panelAt is the address of panel p of the pair.
func (c *quantChunk) panelAt(p int) unsafe.Pointer {
	return c.j.w.panel(min(c.panel+p, c.j.w.panels()-1))
}

// integers are those of the chunk in panel p, as they are packed.
func (c *quantChunk) integers(p int) unsafe.Pointer {
	return unsafe.Add(c.panelAt(p), c.block*c.j.format.quantBytes())
}

// bytes are those of the chunk in panel p, as kernels take them.
func (c *quantChunk) bytes(p int) unsafe.Pointer {
	if c.j.format.bits == 8 && !(c.j.integers && c.j.d.micro.quant.magnitudes) {
		return c.integers(p)
	}
	return unsafe.Pointer(&c.s.quant.chunks[p].q)
}

// least is what kernels take as the chunk's least values in the first panel.
func (c *quantChunk) least() unsafe.Pointer {
	first := &c.s.quant.chunks[0]
	if c.j.format.kind == kindByte {
		return unsafe.Pointer(&first.lack)
	}
	return unsafe.Pointer(&first.least)
}

// tile adds the chunk to a tile of at most so many rows and returns how many it took.
func (c *quantChunk) tile(row, most int) int {
	j := c.j
	e := ends{j: j, q: c.s.quant, row: row, rows: min(most, j.tall), more: c.block > 0,
		to: j.columns(c.panel, pairPanels), width: pairPanels * panelRows}
	e.open()
	defer e.close()
	if !j.integers {
		c.computeFloats(row, e.rows, &e)
		return e.rows
	}
	tiles := 1
	if !e.partial() {
		tiles = max(1, most/j.tall)
	}
	c.computeIntegers(row, tiles, &e)
	return tiles * e.rows
}

// ends is where the chains of a tile end and start: in dst, or in scratch where the columns are
// fewer than kernels compute.
type ends struct {
	j         *quantMatmulJob
	q         *quantScratch
	row, rows int
	to        span
	width     int  // columns that kernels compute
	more      bool // the chains go on from what an earlier chunk left

	c, init  unsafe.Pointer
	ldc, ldi uintptr
}

// open finds the addresses.
func (e *ends) open() {
	j := e.j
	e.c, e.ldc = address(j.dst, e.row*j.outputs+e.to.first), uintptr(j.outputs)*4
	switch {
	case e.partial():
		out := unsafe.Slice(&e.q.out[0][0], len(e.q.out)*len(e.q.out[0]))
		if !e.more {
			j.start(out, len(e.q.out[0]), e.to, area{firstRow: e.row, lastRow: e.row + e.rows})
		} else {
			for r := range e.rows {
				copy(e.q.out[r][:], e.dst(r))
			}
		}
		e.c, e.ldc = unsafe.Pointer(&e.q.out), unsafe.Sizeof(e.q.out[0])
		e.init, e.ldi = e.c, e.ldc
	case e.more || j.accumulate:
		e.init, e.ldi = e.c, e.ldc
	case j.bias != nil:
		e.init = address(j.bias, e.to.first)
	default:
		e.init = unsafe.Pointer(&j.d.zeros)
	}
}

// close brings the outputs home.
func (e *ends) close() {
	if !e.partial() {
		return
	}
	for r := range e.rows {
		copy(e.dst(r), e.q.out[r][:])
	}
}

func (e *ends) partial() bool { return e.to.last-e.to.first < e.width }

// dst is the columns of row r of the tile.
func (e *ends) dst(r int) []float32 {
	at := (e.row + r) * e.j.outputs
	return e.j.dst[at+e.to.first : at+e.to.last]
}

// computeIntegers calls the kernel with 8-bit activations, for tiles of e.rows rows.
func (c *quantChunk) computeIntegers(row, tiles int, e *ends) {
	j, q, in, blocks := c.j, c.s.quant, &c.j.d.inputs, c.j.w.cols/quantBlock
	at, first := row*blocks+c.block, c.bytes(0)
	c.s.tile = quantTile{
		blocks: c.blocks, a: unsafe.Pointer(&in.q[at*quantBlock]), lda: uintptr(j.w.cols),
		meta: unsafe.Pointer(&in.meta[at]), ldm: uintptr(blocks) * unsafe.Sizeof(in.meta[0]),
		q: first, qPanel: uintptr(c.bytes(1)) - uintptr(first),
		s: unsafe.Pointer(&q.chunks[0].scale), m: c.least(),
		sPanel: unsafe.Sizeof(chunk{}),
		c:      e.c, ldc: e.ldc, init: e.init, ldi: e.ldi, tiles: tiles,
	}
	j.kernels[e.rows](&c.s.tile)
}

// computeFloats calls the kernels with float32 activations on the chunk's values.
func (c *quantChunk) computeFloats(row, rows int, e *ends) {
	j, q, t := c.j, c.s.quant, &c.s.call
	*t = tile{k: c.blocks * quantBlock, a: address(j.x, row*j.w.cols+c.block*quantBlock),
		lda: uintptr(j.w.cols) * 4, b: unsafe.Pointer(&q.floats[0]), ldb: panelRows * 4,
		panel: unsafe.Sizeof(q.floats[0]), c: e.c, ldc: e.ldc, init: e.init, ldi: e.ldi}
	if pair := j.d.micro.pairs[gpu.F32][rows]; pair != nil {
		pair(t)
		return
	}
	for p := range pairPanels {
		t.b = unsafe.Pointer(&q.floats[p])
		t.c, t.init = unsafe.Add(e.c, p*panelRows*4), unsafe.Add(e.init, p*panelRows*4)
		j.d.micro.tiles[gpu.F32][rows](t)
	}
}
