package cpu

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// The numerics class tdp has the order of AMX's TDPBF16PS for weights that are not quantised, so
// that machines with it and without it give the same bits. A float32 is a sum of bfloat16, its
// planes; a product is a few products of planes:
//
//	weights in BF16: 1 plane, activations 2; F16: 2 and 2, less the product of the second ones;
//	F32: 3 and 3, without the three smallest.
//
// k goes in stretches of tdpStep, the last filled up with zeros. In a stretch, for each product of
// planes, the even k are one chain of FMAs from 0, the odd k another, and the output becomes
// output + (even + odd). Every operation takes numbers below 2⁻¹²⁶ for zeros of their sign, those
// that it gets and those that it gives.

// tdpStep is how many k one tile product takes.
const tdpStep = 32

// maxPlanes is the most planes of a number.
const maxPlanes = 3

// tdpProduct multiplies a plane of the activations by a plane of the weights.
type tdpProduct struct{ x, w int }

// tdpForm is how a type of weights is multiplied.
type tdpForm struct {
	xPlanes, wPlanes int
	products         []tdpProduct
}

// tdpForms by type.
var tdpForms = [plainTypes]tdpForm{
	gpu.F32:  {3, 3, []tdpProduct{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}}},
	gpu.F16:  {2, 2, []tdpProduct{{0, 1}, {0, 0}, {1, 0}}},
	gpu.BF16: {2, 1, []tdpProduct{{1, 0}, {0, 0}}},
}

// splitActivation gives the planes of an activation, flushed: each is the rest rounded to the
// nearest bfloat16.
func splitActivation(planes []float32, x float32) {
	for i := range planes {
		plane := bfloatToFloat(floatToBfloat(x))
		planes[i] = flush(plane)
		x -= plane
	}
}

// splitWeight gives the planes of a weight, flushed: the upper half of its bits, then of the
// rest's. The last is exact, because a weight has no more bits than so many planes.
func splitWeight(planes []float32, w float32) {
	last := len(planes) - 1
	for i := range last {
		plane := math.Float32frombits(math.Float32bits(w) &^ 0xffff)
		planes[i] = flush(plane)
		w -= plane
	}
	planes[last] = flush(w)
}

// smallestNormal is 2⁻¹²⁶.
const smallestNormal = 0x1p-126

// flush takes a subnormal number for a zero of its sign.
func flush(x float32) float32 {
	if x > -smallestNormal && x < smallestNormal {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// addFlush is a + b, of numbers that are flushed first. A subnormal sum is exact.
func addFlush(a, b float32) float32 { return flush(flush(a) + flush(b)) }

// fmaFlush is a·b + c of flushed numbers, rounded once as if there were numbers below 2⁻¹²⁶, and
// then flushed.
func fmaFlush(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	if s := p + q; !delicate(s) {
		return float32(s)
	}
	return fmaFlushOdd(p, q)
}

// fmaFlushOdd is fmaFlush without a shortcut, for p = a·b.
func fmaFlushOdd(p, q float64) float32 {
	const scale = 1 << 100 // keeps what lies around 2⁻¹²⁶ normal
	s := sumToOdd(p, q)
	if math.Abs(s) >= 0x1p-120 || s != s {
		return float32(s)
	}
	rounded := float32(s * scale)
	if rounded > -smallestNormal*scale && rounded < smallestNormal*scale {
		return float32(math.Copysign(0, s))
	}
	return rounded / scale
}
