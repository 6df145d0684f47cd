package cpu

import "github.com/kvrelay/engine/gpu"

// Embed implements gpu.Kernels.
func (d *Device) Embed(dst gpu.Buffer, table gpu.Matrix, tokens []int32, scale float32) error {
	if err := checkEmbed(dst, table, tokens); err != nil {
		return err
	}
	j := &d.embed
	*j = embedJob{table: table.(*matrix), dst: floats(dst), tokens: tokens, scale: scale}
	tasks, rows := d.split(len(tokens), 8*table.Cols())
	j.rowsPerTask = rows
	d.pool.run(tasks, j)
	*j = embedJob{}
	return nil
}

type embedJob struct {
	table       *matrix
	dst         []float32
	tokens      []int32
	scale       float32
	rowsPerTask int
}

func (j *embedJob) do(_, task int) {
	first := task * j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, len(j.tokens)); r++ {
		j.table.row(j.dst[r*j.table.cols:][:j.table.cols], int(j.tokens[r]), j.scale)
	}
}

// Norm implements gpu.Kernels.
func (d *Device) Norm(a gpu.NormArgs) error {
	a, err := normalised(a)
	if err != nil {
		return err
	}
	j := &d.norm
	*j = normJob{d: d, args: a,
		x: floats(a.X), dst: floats(a.Dst), weight: floats(a.Weight)}
	tasks, rows := d.split(a.Rows, a.Groups*a.Dim)
	j.rowsPerTask = rows
	d.pool.run(tasks, j)
	*j = normJob{}
	return nil
}

type normJob struct {
	d              *Device
	args           gpu.NormArgs
	x, dst, weight []float32
	rowsPerTask    int
}

func (j *normJob) do(worker, task int) {
	a, squares := &j.args, &j.d.scratch[worker].squares
	first := task * j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, a.Rows); r++ {
		for g := range a.Groups {
			at := r*a.Stride + a.Offset + g*a.Dim
			x := j.x[at:][:a.Dim]
			clear(squares[:])
			j.d.micro.sumSquares(squares, x)
			inverse := inverseRoot(squares, a.Dim, a.Eps)
			j.d.micro.scaleWeighted(j.dst[at:][:a.Dim], x, j.weight,
				norm{inverse, a.WeightOffset, a.Accumulate})
		}
	}
}

// GLU implements gpu.Kernels.
func (d *Device) GLU(a gpu.GLUArgs) error {
	if err := checkGLU(a); err != nil {
		return err
	}
	j := &d.glu
	*j = gluJob{args: a, src: floats(a.GateUp), dst: floats(a.Dst),
		gate: d.micro.gates[a.Activation]}
	tasks, rows := d.split(a.Rows, 8*a.Width)
	j.rowsPerTask = rows
	d.pool.run(tasks, j)
	*j = gluJob{}
	return nil
}

type gluJob struct {
	args        gpu.GLUArgs
	src, dst    []float32
	gate        func(dst, gate, up []float32)
	rowsPerTask int
}

func (j *gluJob) do(_, task int) {
	width, first := j.args.Width, task*j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, j.args.Rows); r++ {
		j.gate(j.dst[r*width:], j.src[2*r*width:][:width], j.src[(2*r+1)*width:][:width])
	}
}
