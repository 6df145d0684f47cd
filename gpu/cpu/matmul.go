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
	j := &d.matmul
	*j = matmulJob{d: d, w: w, x: floats(a.X), dst: floats(a.Dst), rows: a.Rows,
		accumulate: a.Accumulate}
	if a.Bias != nil {
		j.bias = floats(a.Bias)
	}
	j.cut(d.pool.threads())
	d.pool.run(j.panelTasks*j.rowTasks, j)
	*j = matmulJob{}
	return nil
}

// matmulJob is one call, cut into panelTasks × rowTasks.
type matmulJob struct {
	d            *Device
	w            *matrix
	x, dst, bias []float32
	rows         int
	accumulate   bool

	panelTasks, panelsPerTask int
	rowTasks, rowsPerTask     int
}

// rowBlock is the fewest rows worth a task of their own, a multiple of tileRows.
const rowBlock = 48

// cut chooses the tasks.
func (j *matmulJob) cut(threads int) {
	panels := j.w.panels()
	j.panelsPerTask, j.rowsPerTask = panels, j.rows
	j.panelTasks, j.rowTasks = 1, 1
	if threads == 1 || j.rows*j.w.rows*j.w.cols < smallWork {
		if j.rows > tileRows {
			j.panelsPerTask = widePanels
			j.panelTasks = (panels + widePanels - 1) / widePanels
		}
		return
	}
	want := tasksPerThread * threads
	j.panelsPerTask = max(1, min(widePanels, panels/want))
	if j.rows == 1 {
		j.panelsPerTask = max(widePanels, panels/want/widePanels*widePanels)
	}
	j.panelTasks = (panels + j.panelsPerTask - 1) / j.panelsPerTask
	j.rowTasks = max(1, min(j.rows/rowBlock, want/j.panelTasks))
	j.rowsPerTask = (j.rows/j.rowTasks + tileRows - 1) / tileRows * tileRows
	if j.rowTasks == 1 {
		j.rowsPerTask = j.rows
	}
	j.rowTasks = (j.rows + j.rowsPerTask - 1) / j.rowsPerTask
}

func (j *matmulJob) do(worker, task int) {
	s := j.d.scratch[worker]
	defer s.forget()
	firstPanel := task % j.panelTasks * j.panelsPerTask
	firstRow := task / j.panelTasks * j.rowsPerTask
	lastPanel := min(firstPanel+j.panelsPerTask, j.w.panels())
	lastRow := min(firstRow+j.rowsPerTask, j.rows)
	for row := firstRow; row < lastRow; row += tileRows {
		rows := min(tileRows, lastRow-row)
		for panel := firstPanel; panel < lastPanel; {
			wide := rows == 1 && panel+widePanels <= lastPanel &&
				(panel+widePanels)*panelRows <= j.w.rows
			switch {
			case wide:
				j.describe(&s.call, row, panel)
				j.d.micro.wide[j.w.dtype](&s.call)
				panel += widePanels
			case (panel+1)*panelRows <= j.w.rows:
				j.describe(&s.call, row, panel)
				j.d.micro.tiles[j.w.dtype][rows](&s.call)
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
	n := j.w.rows
	*t = tile{
		k: j.w.cols, a: address(j.x, row*j.w.cols), lda: uintptr(j.w.cols) * 4,
		b: j.w.panel(panel), ldb: uintptr(j.w.stepBytes()), panel: uintptr(j.w.panelBytes()),
		c: address(j.dst, row*n+panel*panelRows), ldc: uintptr(n) * 4,
	}
	switch {
	case j.accumulate:
		t.init, t.ldi = t.c, t.ldc
	case j.bias != nil:
		t.init = address(j.bias, panel*panelRows)
	default:
		t.init = unsafe.Pointer(&j.d.zeros)
	}
}

// ragged computes the last panel when the weight does not fill it: through scratch, whole tiles.
func (j *matmulJob) ragged(s *scratch, row, rows int) {
	n := j.w.rows
	column := n / panelRows * panelRows
	for r := range rows {
		init := s.init[r*panelRows:][:panelRows]
		clear(init)
		if j.accumulate {
			copy(init, j.dst[(row+r)*n+column:][:n-column])
		} else if j.bias != nil {
			copy(init, j.bias[column:n])
		}
	}
	t := &s.call
	j.describe(t, row, 0)
	t.b = j.w.panel(n / panelRows)
	t.c, t.ldc = unsafe.Pointer(&s.out), panelRows*4
	t.init, t.ldi = unsafe.Pointer(&s.init), panelRows*4
	j.d.micro.tiles[j.w.dtype][rows](t)
	for r := range rows {
		copy(j.dst[(row+r)*n+column:][:n-column], s.out[r*panelRows:])
	}
}
