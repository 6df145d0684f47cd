package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// gatedPanels is how many panels of gates, and as many of ups, meet in a worker's scratch.
const gatedPanels = 4

// gatedWidth is what a row of them takes.
const gatedWidth = gatedPanels * panelRows

// gatedJob is a product with a weight of gates and ups, and the GLU of its outputs while they are
// in the first-level cache: written out they would take megabytes, on their way to and from
// memory.
type gatedJob struct {
	matmulCall // of the gates' panels; those of the ups follow
	gate       func(dst, gate, up []float32)
}

// MatMulGLU implements gpu.Gater.
func (d *Device) MatMulGLU(m gpu.MatMulArgs, g gpu.GLUArgs) error {
	if err := first(checkMatMul(m), checkGLU(g), checkGated(m, g)); err != nil {
		return err
	}
	w := m.W.(*matrix)
	if g.Width%panelRows != 0 || len(w.parts) > 1 || w.parts[0].dtype.Quantised() || d.class.tdp {
		if err := d.MatMul(m); err != nil {
			return err
		}
		return d.GLU(g)
	}
	if m.Rows == 0 {
		return nil
	}
	j := &d.gated
	j.matmulCall = matmulCall{d: d, w: w.parts[0], x: floats(m.X), dst: floats(g.Dst),
		rows: m.Rows, outputs: g.Width, panels: g.Width / panelRows}
	if m.Bias != nil {
		j.bias = floats(m.Bias)
	}
	j.gate = d.micro.gates[g.Activation]
	j.meet()
	j.cut(d.micro.tall, blockRows)
	j.makeRoom()
	d.pool.run(j.tasks(), j)
	j.matmulCall = matmulCall{}
	return nil
}

func (j *gatedJob) do(worker, task int) {
	s, t, tall := j.d.scratch[worker], j.area(task), j.d.micro.tall
	x := j.rowsOf(s, t)
	for row := t.firstRow; row < t.lastRow; row += tall {
		rows := min(tall, t.lastRow-row)
		for panel := t.firstPanel; panel < t.lastPanel; panel += gatedPanels {
			panels := min(gatedPanels, t.lastPanel-panel)
			j.compute(&s.call, &s.gates, x, area{row, row + rows, panel, panel + panels})
			j.compute(&s.call, &s.ups, x,
				area{row, row + rows, j.panels + panel, j.panels + panel + panels})
			for r := range rows {
				dst := j.dst[(row+r)*j.outputs+panel*panelRows:][:panels*panelRows]
				j.gate(dst, s.gates[r][:len(dst)], s.ups[r][:len(dst)])
			}
		}
	}
	s.call = tile{}
}

// compute writes the outputs of a tile and a few panels to scratch.
func (j *gatedJob) compute(call *tile, to *[tileRows][gatedWidth]float32, x rowsAt, t area) {
	j.operands(call, x, t.firstRow, t.firstPanel)
	call.c, call.ldc = unsafe.Pointer(to), gatedWidth*4
	for panel := t.firstPanel; panel < t.lastPanel; {
		done := j.d.micro.multiply(call, j.kind, t.lastRow-t.firstRow, t.lastPanel-panel)
		if panel += done; panel < t.lastPanel {
			j.moveOn(call, done)
		}
	}
}
