package cpu

import (
	"slices"
	"unsafe"
)

// tdpBlock is how many k of a panel are widened at once: their planes stay in the first-level
// cache while tiles of rows pass over them. Chains go on from block to block through the outputs.
const tdpBlock = 256

// tdpInputs are the activations of one product as planes [planes][rows][padded].
type tdpInputs struct {
	planes []float32
	padded int // columns, a multiple of tdpStep; those added are zeros
}

// tdpScratch is what one worker needs for the class tdp. There are no Go pointers in it.
type tdpScratch struct {
	planes [maxPlanes][tdpBlock][panelRows]float32
	out    [tdpRows][panelRows]float32 // of a panel that dst has no room for
}

// tdpMatMul is a product with a weight that is not quantised in the class tdp.
func (d *Device) tdpMatMul(c matmulCall) {
	if d.micro.tdp.amx != nil && c.rows >= amxFrom {
		d.amxMatMul(c)
		return
	}
	in, form := &d.planes, &tdpForms[c.w.dtype]
	in.padded = (c.w.cols + tdpStep - 1) / tdpStep * tdpStep
	n := form.xPlanes * c.rows * in.padded
	in.planes = slices.Grow(in.planes[:0], n)[:n]
	q := &d.splitRows
	*q = splitJob{d: d, x: c.x, rows: c.rows, cols: c.w.cols, planes: form.xPlanes}
	tasks, rows := d.split(c.rows, 2*c.w.cols)
	q.rowsPerTask = rows
	d.pool.run(tasks, q)
	*q = splitJob{}

	j := &d.tdpMatmul
	j.matmulCall, j.form = c, form
	for i, p := range form.products {
		j.tileOffsets[i] = tdpOffsets{uintptr(p.x*c.rows*in.padded) * 4,
			uintptr(p.w) * unsafe.Sizeof(tdpScratch{}.planes[0])}
	}
	j.cut(d.micro.tdp.tall, blockRows)
	d.pool.run(j.tasks(), j)
	j.matmulCall = matmulCall{}
}

// splitJob makes planes of rows of activations.
type splitJob struct {
	d                  *Device
	x                  []float32
	rows, cols, planes int
	rowsPerTask        int
}

func (j *splitJob) do(worker, task int) {
	in, call := &j.d.planes, &j.d.scratch[worker].split
	first := task * j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, j.rows); r++ {
		for p := range j.planes {
			clear(in.planes[(p*j.rows+r)*in.padded:][j.cols:in.padded])
		}
		*call = tdpSplit{n: j.cols, from: address(j.x, r*j.cols),
			to:    address(in.planes, r*in.padded),
			plane: uintptr(j.rows*in.padded) * 4, planes: j.planes}
		j.d.micro.tdp.split(call)
	}
	*call = tdpSplit{}
}

// tdpJob is such a product.
type tdpJob struct {
	matmulCall
	form        *tdpForm
	tileOffsets [6]tdpOffsets
}

func (j *tdpJob) do(worker, task int) {
	s, m, t := j.d.scratch[worker], &j.d.micro.tdp, j.area(task)
	defer s.forget()
	for panel := t.firstPanel; panel < t.lastPanel; {
		full := min(t.lastPanel, j.w.rows/panelRows) - panel // panels without a ragged one
		switch wide := m.widePanels[j.w.dtype]; {
		case t.lastRow-t.firstRow == 1 && wide > 0 && full >= wide && j.w.cols >= tdpStep:
			j.wide(s, t.firstRow, panel)
			panel += wide
		case full >= 1:
			j.blocks(s, panel, t, 0)
			panel++
		default:
			j.ragged(s, panel, t)
			panel++
		}
	}
}

// blocks computes some rows by one panel, from step first on.
func (j *tdpJob) blocks(s *scratch, panel int, t area, first int) {
	for k := first; k < j.w.cols; k += tdpBlock {
		steps := j.widen(s, panel, k)
		for row := t.firstRow; row < t.lastRow; row += j.d.micro.tdp.tall {
			rows := min(j.d.micro.tdp.tall, t.lastRow-row)
			j.describe(&s.tdpTile, row, panel, k)
			j.onWide(s, steps)
			j.d.micro.tdp.tiles[rows](&s.tdpTile)
		}
	}
}

// ragged computes the last panel when the weight does not fill it: tile by tile through scratch.
func (j *tdpJob) ragged(s *scratch, panel int, t area) {
	columns, tall := j.columns(panel, 1), j.d.micro.tdp.tall
	out := unsafe.Slice(&s.tdp.out[0][0], tdpRows*panelRows)
	for row := t.firstRow; row < t.lastRow; row += tall {
		rows := min(tall, t.lastRow-row)
		j.start(out, panelRows, columns, area{firstRow: row, lastRow: row + rows})
		for k := 0; k < j.w.cols; k += tdpBlock {
			steps := j.widen(s, panel, k)
			j.describe(&s.tdpTile, row, panel, k)
			s.tdpTile.c, s.tdpTile.ldc = unsafe.Pointer(&s.tdp.out), panelRows*4
			s.tdpTile.init, s.tdpTile.ldi = s.tdpTile.c, s.tdpTile.ldc
			j.onWide(s, steps)
			j.d.micro.tdp.tiles[rows](&s.tdpTile)
		}
		for r := range rows {
			at := (row + r) * j.outputs
			copy(j.dst[at+columns.first:at+columns.last], out[r*panelRows:])
		}
	}
}

// widen makes planes of steps [k, k+tdpBlock) of a panel, and returns how many there are, those
// that fill up a stretch included.
func (j *tdpJob) widen(s *scratch, panel, k int) int {
	n := min(tdpBlock, j.w.cols-k)
	s.planes = tdpWiden{n: n, from: unsafe.Add(j.w.panel(panel), k*j.w.stepBytes()),
		to: unsafe.Pointer(&s.tdp.planes), plane: unsafe.Sizeof(s.tdp.planes[0])}
	j.d.micro.tdp.widen[j.w.dtype](&s.planes)
	steps := (n + tdpStep - 1) / tdpStep * tdpStep
	for p := range j.form.wPlanes {
		clear(s.tdp.planes[p][n:steps])
	}
	return steps
}

// onWide lets a call see the widened steps.
func (j *tdpJob) onWide(s *scratch, steps int) {
	s.tdpTile.stretches = steps / tdpStep
	s.tdpTile.w, s.tdpTile.products = unsafe.Pointer(&s.tdp.planes), len(j.form.products)
	s.tdpTile.offsets = &j.tileOffsets[0]
}

// wide computes one row by a few panels as they are packed, but for what is left of the last
// stretch.
func (j *tdpJob) wide(s *scratch, row, panel int) {
	whole, panels := j.w.cols/tdpStep, j.d.micro.tdp.widePanels[j.w.dtype]
	j.describe(&s.tdpTile, row, panel, 0)
	s.tdpTile.stretches, s.tdpTile.w = whole, j.w.panel(panel)
	s.tdpTile.plane = uintptr(j.rows*j.d.planes.padded) * 4
	s.tdpTile.panel = uintptr(j.w.panelBytes())
	j.d.micro.tdp.wide[j.w.dtype](&s.tdpTile)
	if whole*tdpStep == j.w.cols {
		return
	}
	for p := range panels {
		j.blocks(s, panel+p, area{firstRow: row, lastRow: row + 1}, whole*tdpStep)
	}
}

// describe fills a call for the outputs from row and panel on, from step k on.
func (j *tdpJob) describe(t *tdpTile, row, panel, k int) {
	column := j.w.first + panel*panelRows
	*t = tdpTile{
		x:   address(j.d.planes.planes, row*j.d.planes.padded+k),
		ldx: uintptr(j.d.planes.padded) * 4,
		c:   address(j.dst, row*j.outputs+column), ldc: uintptr(j.outputs) * 4,
		mode: [2]uint32{1: flushMode},
	}
	switch {
	case k > 0 || j.accumulate:
		t.init, t.ldi = t.c, t.ldc
	case j.bias != nil:
		t.init = address(j.bias, column)
	default:
		t.init = unsafe.Pointer(&j.d.zeros)
	}
}
