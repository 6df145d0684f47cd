package cpu

import "github.com/kvrelay/engine/gpu"

const (
	// nearSets are the bytes that the sets of a first-level cache cover: lines so far apart, or a
	// multiple of it, share one.
	nearSets = 4096
	// rowGap keeps the rows of a block out of one another's sets. It is a line of the cache.
	rowGap = 16
	// apartFrom is how many rows a set has no room for.
	apartFrom = 8
)

// meet says how tile kernels see the operands of a product.
//
// Where a tile's rows would lie in the same few sets of the cache and drive one another out of it,
// each pair of panels reading all of them, workers copy the rows of their blocks apart. Where the
// class wants activations in bfloat16, they round them on the way: a block's rows once, by whom
// they are multiplied.
func (c *matmulCall) meet() {
	c.kind, c.steps, c.stride = c.w.kind(), c.w.steps(), c.w.cols
	switch {
	case c.d.class.bf16 && c.w.dtype == gpu.BF16:
		c.rounds, c.flush = true, c.kind != kindPairs
		c.stride = ((c.steps+rowGap-1)/rowGap | 1) * rowGap // an odd number of lines
	case c.rows >= apartFrom && c.w.cols*4%(nearSets/2) == 0:
		c.stride += rowGap
	default:
		return
	}
	c.d.calls++
	c.number = c.d.calls
}

// rowsApart is a worker's copy of the rows of a block.
type rowsApart struct {
	memory   *memory
	number   int // of the call whose rows they are
	firstRow int
}

// makeRoom lets every worker have its copy of a block. It is asked once the blocks are cut.
func (c *matmulCall) makeRoom() {
	if c.number == 0 {
		return
	}
	most := (c.tiles + c.blocks - 1) / c.blocks * c.tall * c.stride * 4
	for _, s := range c.d.scratch {
		if s.apart.memory == nil || len(s.apart.memory.bytes) < most {
			s.apart.memory = newMemory(most)
		}
	}
}

// rowsAt are rows of activations: that of a number lies stride·(number - first) from the start.
type rowsAt struct {
	x             []float32 // or pairs of bfloat16, four bytes each
	first, stride int
}

// rowsOf are the activations of a task's rows as kernels see them.
func (c *matmulCall) rowsOf(s *scratch, t area) rowsAt {
	if c.number == 0 {
		return rowsAt{c.x, 0, c.stride}
	}
	apart := &s.apart
	x := apart.memory.floats()
	if apart.number != c.number || apart.firstRow != t.firstRow {
		apart.number, apart.firstRow = c.number, t.firstRow
		for r := t.firstRow; r < t.lastRow; r++ {
			c.copyRow(s, x[(r-t.firstRow)*c.stride:], c.x[r*c.w.cols:][:c.w.cols])
		}
		s.pairs, s.split = pairCall{}, tdpSplit{}
	}
	return rowsAt{x, t.firstRow, c.stride}
}

// copyRow copies or rounds one row.
func (c *matmulCall) copyRow(s *scratch, to, from []float32) {
	switch {
	case !c.rounds:
		copy(to, from)
	case c.kind == kindPairs:
		s.pairs = pairCall{n: len(from), from: address(from, 0), to: address(to, 0)}
		c.d.micro.roundPairs(&s.pairs)
	default:
		s.split = tdpSplit{n: len(from), from: address(from, 0), to: address(to, 0), planes: 1}
		c.d.micro.tdp.split(&s.split)
	}
}
