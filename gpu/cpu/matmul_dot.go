package cpu

import (
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// roundedInputs are the activations of one product, rounded to bfloat16: pairs of them for a set
// that multiplies those, else float32.
type roundedInputs struct{ numbers []float32 }

// meet says how tile kernels see the operands. Activations are rounded here where the class wants
// it, once for all panels.
func (c *matmulCall) meet() {
	c.kind, c.steps, c.stride = c.w.kind(), c.w.steps(), c.w.cols
	if !c.d.class.bf16 || c.w.dtype != gpu.BF16 {
		return
	}
	// Rows an odd number of lines apart do not share sets of the first-level cache.
	c.stride = ((c.steps+rowGap-1)/rowGap | 1) * rowGap
	in, j := &c.d.rounded, &c.d.roundRows
	in.numbers = slices.Grow(in.numbers[:0], c.rows*c.stride)[:c.rows*c.stride]
	tasks, rows := c.d.split(c.rows, c.w.cols)
	*j = roundJob{matmulCall: *c, to: in.numbers, rowsPerTask: rows}
	c.d.pool.run(tasks, j)
	*j = roundJob{}
	c.x, c.flush = in.numbers, c.kind != kindPairs
}

// roundJob rounds rows of activations.
type roundJob struct {
	matmulCall
	to          []float32
	rowsPerTask int
}

func (j *roundJob) do(worker, task int) {
	s, m, first := j.d.scratch[worker], j.d.micro, task*j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, j.rows); r++ {
		from, to := address(j.x, r*j.w.cols), address(j.to, r*j.stride)
		if j.kind == kindPairs {
			s.pairs = pairCall{n: j.w.cols, from: from, to: to}
			m.roundPairs(&s.pairs)
		} else {
			s.split = tdpSplit{n: j.w.cols, from: from, to: to, planes: 1}
			m.tdp.split(&s.split)
		}
	}
	s.pairs, s.split = pairCall{}, tdpSplit{}
}
