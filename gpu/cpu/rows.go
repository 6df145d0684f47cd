package cpu

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// What the kernels do to one row, in plain Go. Twin calls these; the assembly does the same steps,
// eight lanes at a time, and calls these for what is left of a row.

// normLanes is how many partial sums a row's squares go to: element i to sum i mod normLanes.
const normLanes = 16

// sumSquares adds the squares of x, whose first element has index 0, to the lanes. A square of a
// float32 is exact in float64, so it does not matter whether a machine fuses the addition.
func sumSquares(lanes *[normLanes]float64, x []float32) {
	for i, v := range x {
		lanes[i%normLanes] += float64(v) * float64(v)
	}
}

// inverseRoot is 1/sqrt(mean(x²) + eps) from the lanes of a row of length dim.
func inverseRoot(lanes *[normLanes]float64, dim int, eps float32) float32 {
	var four [4]float64
	for i := range four {
		four[i] = (lanes[i] + lanes[i+4]) + (lanes[i+8] + lanes[i+12])
	}
	sum := (four[0] + four[2]) + (four[1] + four[3])
	mean := float64(sum / float64(dim))
	return float32(1 / math.Sqrt(mean+float64(eps)))
}

// norm is what scaleWeighted does to a row besides its weights.
type norm struct {
	inverse, offset float32
	accumulate      bool
}

// scaleWeighted writes x·inverse·(weight+offset) to dst, or adds it to dst.
func scaleWeighted(dst, x, weight []float32, n norm) {
	for i, v := range x {
		y := float32(float32(v*n.inverse) * float32(weight[i]+n.offset))
		if n.accumulate {
			y = dst[i] + y
		}
		dst[i] = y
	}
}

// scaleRow multiplies a row by f.
func scaleRow(x []float32, f float32) {
	for i, v := range x {
		x[i] = float32(v * f)
	}
}

// attentionBlock is how many positions attention takes at once. Block b covers positions
// [b·attentionBlock, (b+1)·attentionBlock) whatever the pages and the chunks are.
const attentionBlock = 64

// softmaxBlock turns the raw scores of one block, hidden ones being -Inf, into weights relative to
// the larger of max and the block's own maximum. It returns that maximum and the sum of the
// weights; lane i mod 8 sums column i, and the lanes are added as a tree.
func softmaxBlock(scores *[attentionBlock]float32, scale, max float32) (newMax, sum float32) {
	var lanes [8]float32
	for i := range lanes {
		lanes[i] = max
	}
	for i, s := range scores {
		s = float32(s * scale)
		scores[i] = s
		if s > lanes[i%8] {
			lanes[i%8] = s
		}
	}
	newMax = reduce(lanes, func(a, b float32) float32 {
		if b > a {
			return b
		}
		return a
	})
	lanes = [8]float32{}
	for i, s := range scores {
		p := exp32(s - newMax)
		scores[i] = p
		lanes[i%8] += p
	}
	return newMax, reduce(lanes, func(a, b float32) float32 { return a + b })
}

// softLine is what a query line knows of the blocks before: the largest score and the sum of the
// weights relative to it.
type softLine struct{ top, total float32 }

// softmaxStep is softmaxBlock that goes on from a line's state. The correction is what the weights
// of earlier blocks are to be multiplied by.
func softmaxStep(
	scores *[attentionBlock]float32, scale float32, line *softLine,
) (correction float32) {
	newTop, sum := softmaxBlock(scores, scale, line.top)
	correction = exp32(line.top - newTop)
	line.top, line.total = newTop, fma32(line.total, correction, sum)
	return correction
}

// reduce folds eight lanes as the vector unit does: halves onto each other.
func reduce(l [8]float32, f func(a, b float32) float32) float32 {
	return f(f(f(l[0], l[4]), f(l[2], l[6])), f(f(l[1], l[5]), f(l[3], l[7])))
}

// gateSiLU writes silu(gate)·up to dst.
func gateSiLU(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(silu(g) * up[i])
	}
}

// gateGELU writes geluTanh(gate)·up to dst.
func gateGELU(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(geluTanh(g) * up[i])
	}
}

// rotate turns the pairs (low[i], high[i]) by the angles whose cosines and sines are given.
func rotate(low, high, cos, sin []float32) {
	for i, x := range low {
		y := high[i]
		low[i] = float32(x*cos[i]) - float32(y*sin[i])
		high[i] = float32(y*cos[i]) + float32(x*sin[i])
	}
}

// angles writes the cosines and sines of one position.
func angles(cos, sin []float32, rope *gpu.Rope, position int32) {
	for i, f := range rope.Freqs {
		s, c := sincos(float64(float64(position) * f))
		cos[i] = float32(float32(c) * rope.Scale)
		sin[i] = float32(float32(s) * rope.Scale)
	}
}
