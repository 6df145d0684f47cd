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
			outputs: w.rows, accumulate: a.Accumulate}
		if a.Bias != nil {
			call.bias = floats(a.Bias)
		}
		if part.dtype.Quantised() {
			d.quantMatMul(call)
			continue
		}
		call.cut(d.pool.threads())
		d.matmul.matmulCall = call
		d.pool.run(call.panelTasks*call.rowTasks, &d.matmul)
		d.matmul.matmulCall = matmulCall{}
	}
	return nil
}

// matmulCall is one product with one packed weight, cut into panelTasks × rowTasks.
type matmulCall struct {
	d            *Device
	w            *packed
	x, dst, bias []float32
	rows         int
	outputs      int // of a row of dst
	accumulate   bool

	panelTasks, panelsPerTask int
	rowTasks, rowsPerTask     int
}

// rowBlock is the fewest rows worth a task of their own.
const rowBlock = 48

// cut chooses the tasks.
func (c *matmulCall) cut(threads int) {
	panels, tall := c.w.panels(), c.d.micro.tall
	c.panelsPerTask, c.rowsPerTask = panels, c.rows
	c.panelTasks, c.rowTasks = 1, 1
	if threads == 1 || c.rows*c.w.rows*c.w.cols < smallWork {
		if c.rows > tall {
			c.panelsPerTask = widePanels
			c.panelTasks = (panels + widePanels - 1) / widePanels
		}
		return
	}
	want := tasksPerThread * threads
	c.panelsPerTask = max(1, min(widePanels, panels/want/pairPanels*pairPanels))
	if c.rows == 1 {
		c.panelsPerTask = max(widePanels, panels/want/widePanels*widePanels)
	}
	c.panelTasks = (panels + c.panelsPerTask - 1) / c.panelsPerTask
	c.rowTasks = max(1, min(c.rows/rowBlock, want/c.panelTasks))
	c.rowsPerTask = (c.rows/c.rowTasks + tall - 1) / tall * tall
	if c.rowTasks == 1 {
		c.rowsPerTask = c.rows
	}
	c.rowTasks = (c.rows + c.rowsPerTask - 1) / c.rowsPerTask
}

// area is what a task covers: rows [firstRow, lastRow) by panels [firstPanel, lastPanel).
type area struct{ firstRow, lastRow, firstPanel, lastPanel int }

func (c *matmulCall) area(task int) area {
	panel, row := task%c.panelTasks*c.panelsPerTask, task/c.panelTasks*c.rowsPerTask
	return area{row, min(row+c.rowsPerTask, c.rows), panel,
		min(panel+c.panelsPerTask, c.w.panels())}
}

// matmulJob is a product with a weight that is not quantised.
type matmulJob struct{ matmulCall }

func (j *matmulJob) do(worker, task int) {
	s, m, dtype := j.d.scratch[worker], j.d.micro, j.w.dtype
	defer s.forget()
	t := j.area(task)
	for row := t.firstRow; row < t.lastRow; row += m.tall {
		rows := min(m.tall, t.lastRow-row)
		for panel := t.firstPanel; panel < t.lastPanel; {
			full := min(t.lastPanel, j.w.rows/panelRows) - panel // panels without a ragged one
			j.describe(&s.call, row, panel)
			switch {
			case rows == 1 && full >= widePanels:
				m.wide[dtype](&s.call)
				panel += widePanels
			case full >= pairPanels && m.pairs[dtype][rows] != nil:
				m.pairs[dtype][rows](&s.call)
				panel += pairPanels
			case full >= 1:
				m.tiles[dtype][rows](&s.call)
				panel++
			default:
				j.ragged(s, row, rows)
				panel++
			}
		}
	}
}

// describe fills a call for the outputs from row and panel on.
func (j *matmulJob) describe(t *tile, row, panel int) {
	column := j.w.first + panel*panelRows
	*t = tile{
		k: j.w.cols, a: address(j.x, row*j.w.cols), lda: uintptr(j.w.cols) * 4,
		b: j.w.panel(panel), ldb: uintptr(j.w.stepBytes()), panel: uintptr(j.w.panelBytes()),
		c: address(j.dst, row*j.outputs+column), ldc: uintptr(j.outputs) * 4,
	}
	switch {
	case j.accumulate:
		t.init, t.ldi = t.c, t.ldc
	case j.bias != nil:
		t.init = address(j.bias, column)
	default:
		t.init = unsafe.Pointer(&j.d.zeros)
	}
}

// ragged computes the last panel when the weight does not fill it: through scratch, whole tiles.
func (j *matmulJob) ragged(s *scratch, row, rows int) {
	t, columns := &s.call, j.columns(j.w.rows/panelRows, 1)
	j.start(s.init[:], panelRows, columns, area{firstRow: row, lastRow: row + rows})
	t.c, t.ldc = unsafe.Pointer(&s.out), panelRows*4
	t.init, t.ldi = unsafe.Pointer(&s.init), panelRows*4
	j.d.micro.tiles[j.w.dtype][rows](t)
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
