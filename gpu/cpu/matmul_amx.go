package cpu

import "unsafe"

const (
	// amxStep is how many k of two panels are widened at once, a multiple of tdpStep: their planes
	// stay in the second-level cache while tiles of rows pass over them.
	amxStep = 1024
	// amxFrom is the fewest rows that tiles are for: the vectors are faster on fewer.
	amxFrom = 16
	// planeBytes is a plane of amxStep k of a panel.
	planeBytes = amxStep / tdpStep * tileBytes
)

// amxInputs are the activations of one product as planes of tiles
// [planes][blocks of 16 rows][stretches][16][32], bfloat16.
type amxInputs struct {
	tiles     *memory
	plane     int // bytes
	stretches int
}

// amxScratch is what one worker needs for tiles. There are no Go pointers in it.
type amxScratch struct {
	planes [pairPanels][maxPlanes][planeBytes]byte
	out    [amxRows][pairPanels * panelRows]float32 // of panels that dst has no room for
	config tileConfig
}

// amxMatMul is tdpMatMul on tiles.
func (d *Device) amxMatMul(c matmulCall) {
	in, form := &d.tiles, &tdpForms[c.w.dtype]
	in.stretches = (c.w.cols + tdpStep - 1) / tdpStep
	in.plane = (c.rows + amxBlockRows - 1) / amxBlockRows * in.stretches * tileBytes
	if need := form.xPlanes * in.plane; in.tiles == nil || len(in.tiles.bytes) < need {
		in.tiles = newMemory(need)
	}
	for _, s := range d.scratch {
		if s.amx == nil {
			s.amx = (*amxScratch)(newMemory(int(unsafe.Sizeof(amxScratch{}))).at(0))
		}
	}
	q := &d.splitTiles
	*q = amxSplitJob{d: d, x: c.x, rows: c.rows, cols: c.w.cols, planes: form.xPlanes}
	tasks, rows := d.split(c.rows, 2*c.w.cols)
	q.rowsPerTask = rows
	d.pool.run(tasks, q)
	*q = amxSplitJob{}

	j := &d.amxMatmul
	j.matmulCall, j.form = c, form
	j.cut(amxRows, amxMost)
	if j.panelsPerTask%pairPanels != 0 {
		j.panelsPerTask += pairPanels - j.panelsPerTask%pairPanels
		j.panelTasks = (j.w.panels() + j.panelsPerTask - 1) / j.panelsPerTask
	}
	d.pool.run(j.tasks(), j)
	j.matmulCall = matmulCall{}
}

// amxMost is the most rows of a task: weights are widened once for them.
const amxMost = 8 * amxRows

// amxSplitJob makes planes of rows of activations.
type amxSplitJob struct {
	d                  *Device
	x                  []float32
	rows, cols, planes int
	rowsPerTask        int
}

func (j *amxSplitJob) do(worker, task int) {
	in, call := &j.d.tiles, &j.d.scratch[worker].split
	first := task * j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, j.rows); r++ {
		at := r/amxBlockRows*in.stretches*tileBytes + r%amxBlockRows*2*tdpStep
		*call = tdpSplit{n: j.cols, from: address(j.x, r*j.cols), to: in.tiles.at(at),
			plane: uintptr(in.plane), planes: j.planes}
		j.d.micro.tdp.amx.split(call)
	}
	*call = tdpSplit{}
}

// amxJob is such a product.
type amxJob struct {
	matmulCall
	form *tdpForm
}

func (j *amxJob) do(worker, task int) {
	s, t := j.d.scratch[worker], j.area(task)
	defer s.forget()
	for panel := t.firstPanel; panel < t.lastPanel; panel += pairPanels {
		if (panel+pairPanels)*panelRows <= j.w.rows {
			j.whole(s, panel, t)
		} else {
			j.ragged(s, panel, t)
		}
	}
}

// whole computes the rows of a task by two full panels.
func (j *amxJob) whole(s *scratch, panel int, t area) {
	column := j.w.first + panel*panelRows
	for k := 0; k < j.w.cols; k += amxStep {
		j.widen(s, panel, k)
		for row := t.firstRow; row < t.lastRow; row += amxRows {
			call := &s.amxCall
			*call = amxCall{c: address(j.dst, row*j.outputs+column), ldc: uintptr(j.outputs) * 4}
			switch {
			case k > 0 || j.accumulate:
				call.init, call.ldi = call.c, call.ldc
			case j.bias != nil:
				call.init = address(j.bias, column)
			default:
				call.init = unsafe.Pointer(&j.d.zeros)
			}
			j.tile(s, row, min(amxRows, t.lastRow-row), k)
		}
	}
}

// ragged computes them by panels that the weight does not fill, or by one: tile by tile through
// scratch.
func (j *amxJob) ragged(s *scratch, panel int, t area) {
	columns, width := j.columns(panel, pairPanels), len(s.amx.out[0])
	out := unsafe.Slice(&s.amx.out[0][0], amxRows*width)
	for row := t.firstRow; row < t.lastRow; row += amxRows {
		rows := min(amxRows, t.lastRow-row)
		j.start(out, width, columns, area{firstRow: row, lastRow: row + rows})
		for k := 0; k < j.w.cols; k += amxStep {
			j.widen(s, panel, k)
			call := &s.amxCall
			*call = amxCall{c: unsafe.Pointer(&s.amx.out), ldc: uintptr(width) * 4}
			call.init, call.ldi = call.c, call.ldc
			j.tile(s, row, rows, k)
		}
		for r := range rows {
			at := (row + r) * j.outputs
			copy(j.dst[at+columns.first:at+columns.last], out[r*width:])
		}
	}
}

// widen makes planes of k steps from k on of two panels; a pair beyond the last one has that twice.
func (j *amxJob) widen(s *scratch, panel, k int) {
	steps := min(amxStep, j.w.cols-k)
	for p := range pairPanels {
		from := j.w.panel(min(panel+p, j.w.panels()-1))
		s.planes = tdpWiden{n: steps, from: unsafe.Add(from, k*j.w.stepBytes()),
			to: unsafe.Pointer(&s.amx.planes[p]), plane: planeBytes}
		j.d.micro.tdp.amx.widen[j.w.dtype](&s.planes)
	}
}

// tile adds steps from k on to the outputs of some rows, whose place is in the call.
func (j *amxJob) tile(s *scratch, row, rows, k int) {
	in, call := &j.d.tiles, &s.amxCall
	s.amx.config.set(rows)
	call.config = &s.amx.config
	call.stretches = (min(amxStep, j.w.cols-k) + tdpStep - 1) / tdpStep
	call.x = in.tiles.at((row/amxBlockRows*in.stretches + k/tdpStep) * tileBytes)
	call.xNext, call.xPlane = uintptr(in.stretches*tileBytes), uintptr(in.plane)
	call.w = unsafe.Pointer(&s.amx.planes)
	call.wNext, call.wPlane = unsafe.Sizeof(s.amx.planes[0]), planeBytes
	j.d.micro.tdp.amx.tiles[j.w.dtype][(rows-1)/amxBlockRows](call)
}
