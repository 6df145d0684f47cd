package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// MatMul implements gpu.Kernels. A task is a few panels for some of the rows: its panels stay in
// the second-level cache while tiles of rows pass over them. There is no blocking over k, so that
// an output's chain is one chain.
func (d *Device) MatMul(a gpu.MatMulArgs) error {
	if err := checkMatMul(a); err != nil {
		return err
	}
	if a.Rows == 0 {
		return nil
	}
	w := a.W.(*matrix)
	for _, part := range w.parts {
		call := matmulCall{d: d, w: part, x: floats(a.X), dst: floats(a.Dst), rows: a.Rows,
			outputs: w.rows, panels: part.panels(), accumulate: a.Accumulate}
		if a.Bias != nil {
			call.bias = floats(a.Bias)
		}
		if part.dtype.Quantised() {
			d.quantMatMul(call)
			continue
		}
		if d.class.tdp {
			d.tdpMatMul(call)
			continue
		}
		call.meet()
		call.cut(d.micro.tall, blockRows)
		call.makeRoom()
		d.matmul.matmulCall = call
		d.pool.run(call.tasks(), &d.matmul)
		d.matmul.matmulCall = matmulCall{}
	}
	return nil
}

// matmulCall is one product with one packed weight, cut into blocks of rows × panelTasks.
type matmulCall struct {
	d            *Device
	w            *packed
	x, dst, bias []float32
	rows         int
	outputs      int // of a row of dst
	panels       int // to be cut
	accumulate   bool

	kind   tileKind
	steps  int  // of a chain, as tile kernels count them
	rounds bool // whether workers round activations to bfloat16
	flush  bool // whether subnormals are taken for zeros
	stride int  // from row to row of what kernels see
	number int  // of the call, where that is a worker's copy; else 0

	tall, tiles, blocks       int // rows of a tile, tiles, blocks of tiles
	panelsPerTask, panelTasks int
}

const (
	// blockRows is the most rows of a block: their activations stay in the second-level cache while
	// all panels pass by.
	blockRows = 72
	// leastTiles is the fewest that are worth a block of their own, which has to read all panels.
	leastTiles = 4
	// blockPanels and blockBytes bound the panels of a task with a block of rows: a tile's
	// activations come from the first-level cache for all but the first, the panels from the
	// second-level cache for all tiles but the first.
	blockPanels = 8
	blockBytes  = 512 << 10
)

// cut chooses the tasks, for tiles of so many rows and blocks of at most so many. The tasks of a
// block follow one another: a worker has the same rows in all products of a prompt, and finds them
// in its cache.
func (c *matmulCall) cut(tall, most int) {
	threads, panels := c.d.pool.threads(), c.panels
	c.tall, c.tiles = tall, (c.rows+tall-1)/tall
	c.blocks = max(1, min(threads, c.tiles/leastTiles), (c.rows+most-1)/most)
	if c.blocks > threads {
		c.blocks = (c.blocks + threads - 1) / threads * threads
	}
	want := tasksPerThread * threads
	switch {
	case c.rows*c.w.rows*c.w.cols < smallWork:
		c.panelsPerTask = panels
	case c.blocks > 1:
		c.panelsPerTask = max(pairPanels, min(blockPanels,
			blockBytes/c.w.panelBytes()/pairPanels*pairPanels))
	case c.rows == 1:
		c.panelsPerTask = max(widePanels, panels/want/widePanels*widePanels)
	default:
		c.panelsPerTask = max(pairPanels, min(widePanels, panels/want/pairPanels*pairPanels))
	}
	c.panelTasks = (panels + c.panelsPerTask - 1) / c.panelsPerTask
}

// tasks counts them.
func (c *matmulCall) tasks() int { return c.blocks * c.panelTasks }

// area is what a task covers: rows [firstRow, lastRow) by panels [firstPanel, lastPanel).
type area struct{ firstRow, lastRow, firstPanel, lastPanel int }

func (c *matmulCall) area(task int) area {
	panel, block := task%c.panelTasks*c.panelsPerTask, task/c.panelTasks
	row := func(block int) int { return min(block*c.tiles/c.blocks*c.tall, c.rows) }
	return area{row(block), row(block + 1), panel, min(panel+c.panelsPerTask, c.panels)}
}

// matmulJob is a product with a weight that is not quantised.
type matmulJob struct{ matmulCall }

func (j *matmulJob) do(worker, task int) {
	s, m, t := j.d.scratch[worker], j.d.micro, j.area(task)
	x := j.rowsOf(s, t)
	for row := t.firstRow; row < t.lastRow; row += m.tall {
		rows := min(m.tall, t.lastRow-row)
		j.operands(&s.call, x, row, t.firstPanel)
		j.outputsOf(&s.call, row, t.firstPanel)
		for panel := t.firstPanel; panel < t.lastPanel; {
			full := min(t.lastPanel, j.w.rows/panelRows) - panel // panels without a ragged one
			if full < 1 {
				j.ragged(s, row, rows)
				break // it is the last one
			}
			done := m.multiply(&s.call, j.kind, rows, full)
			if panel += done; panel < t.lastPanel {
				j.moveOn(&s.call, done)
			}
		}
	}
	s.call = tile{}
}

// multiply computes a tile of rows by as many panels as a kernel takes, at most so many, and
// returns how many.
func (m *micro) multiply(t *tile, kind tileKind, rows, panels int) int {
	switch {
	case rows == 1 && panels >= widePanels:
		m.wide[kind](t)
		return widePanels
	case panels >= pairPanels && m.pairs[kind][rows] != nil:
		m.pairs[kind][rows](t)
		return pairPanels
	}
	m.tiles[kind][rows](t)
	return 1
}

// outputsOf fills a call for the outputs from row and panel on.
func (j *matmulJob) outputsOf(t *tile, row, panel int) {
	t.c = address(j.dst, row*j.outputs+j.w.first+panel*panelRows)
	t.ldc = uintptr(j.outputs) * 4
	if j.accumulate {
		t.init, t.ldi = t.c, t.ldc
	}
}

// operands fills all of a call but the outputs.
func (c *matmulCall) operands(t *tile, x rowsAt, row, panel int) {
	*t = tile{
		k: c.steps, a: address(x.x, (row-x.first)*x.stride), lda: uintptr(x.stride) * 4,
		b: c.w.panel(panel), ldb: uintptr(c.w.stepBytes()), panel: uintptr(c.w.panelBytes()),
		init: unsafe.Pointer(&c.d.zeros),
	}
	if c.bias != nil {
		t.init = address(c.bias, c.w.first+panel*panelRows)
	}
	if c.flush {
		t.mode[1] = flushMode
	}
}

// moveOn goes on to the operands and outputs that lie so many panels further.
func (c *matmulCall) moveOn(t *tile, panels int) {
	t.rest = 0
	t.b, t.c = unsafe.Add(t.b, panels*int(t.panel)), unsafe.Add(t.c, panels*panelRows*4)
	if c.bias != nil || c.accumulate {
		t.init = unsafe.Add(t.init, panels*panelRows*4)
	}
}

// ragged computes the last panel when the weight does not fill it: through scratch, whole tiles.
func (j *matmulJob) ragged(s *scratch, row, rows int) {
	t, columns := &s.call, j.columns(j.w.rows/panelRows, 1)
	j.start(s.init[:], panelRows, columns, area{firstRow: row, lastRow: row + rows})
	t.c, t.ldc = unsafe.Pointer(&s.out), panelRows*4
	t.init, t.ldi = unsafe.Pointer(&s.init), panelRows*4
	j.d.micro.tiles[j.kind][rows](t)
	for r := range rows {
		at := (row + r) * j.outputs
		copy(j.dst[at+columns.first:at+columns.last], s.out[r*panelRows:])
	}
}

// span is columns [first, last) of dst.
type span struct{ first, last int }

// columns are those of panels from panel on.
func (c *matmulCall) columns(panel, panels int) span {
	return span{c.w.first + panel*panelRows,
		c.w.first + min((panel+panels)*panelRows, c.w.rows)}
}

// start writes what the chains of some columns start from into rows of a tile.
func (c *matmulCall) start(init []float32, width int, to span, rows area) {
	for r := rows.firstRow; r < rows.lastRow; r++ {
		row := init[(r-rows.firstRow)*width:][:width]
		clear(row)
		if c.accumulate {
			copy(row, c.dst[r*c.outputs+to.first:r*c.outputs+to.last])
		} else if c.bias != nil {
			copy(row, c.bias[to.first:to.last])
		}
	}
}
