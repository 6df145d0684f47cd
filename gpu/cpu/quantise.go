package cpu

import "math"

// How activations become 8-bit integers. The steps are part of the numerics class.

const (
	quantTop = 127 // the largest integer
	// Magnitudes are compared as bits: below the first a block counts as zeros, because 127 divided
	// by it could overflow; from the second on it holds an infinity or a NaN.
	quantTiny   = (127 - 100) << 23
	quantBroken = 0x7f800000
)

// quantiseBlock rounds x/scale to the nearest integers, ties to even, where scale is the largest
// magnitude of the block divided by 127. A block with an infinity or a NaN gets a scale of NaN.
func quantiseBlock(q *[quantBlock]int8, x *[quantBlock]float32) (scale float32, sum int32) {
	largest := uint32(0)
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&0x7fffffff)
	}
	*q = [quantBlock]int8{}
	if largest >= quantBroken {
		return float32(math.NaN()), 0
	}
	if largest < quantTiny {
		return 0, 0
	}
	top := math.Float32frombits(largest)
	inverse := quantTop / top
	for i, v := range x {
		n := int32(math.RoundToEven(float64(float32(v * inverse))))
		q[i] = int8(n)
		sum += n
	}
	return top / quantTop, sum
}
