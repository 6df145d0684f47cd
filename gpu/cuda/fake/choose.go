package fake

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// sound says that a row of logits has a largest number, and no NaN.
func sound(r row, width int) bool {
	most := float32(math.Inf(-1))
	for i := range width {
		if x := r.get(i); x != x {
			return false
		} else if x > most {
			most = x
		}
	}
	return !math.IsInf(float64(most), 0)
}

// ranked are the places of a row's numbers, larger ones first.
func ranked(r row, width int) []int32 {
	places := make([]int32, width)
	for i := range places {
		places[i] = int32(i)
	}
	slices.SortStableFunc(places, func(a, b int32) int {
		return cmp.Compare(r.get(int(b)), r.get(int(a))) // NaNs come last
	})
	return places
}

func argmax(c *call) {
	a, dst, x, width := c.named(), c.ptr(), c.ptr(), c.int()
	for r := range int(c.grid[0]) {
		best := int32(-1)
		if from := c.row(x, a, r*width, width); sound(from, width) {
			best = ranked(from, width)[0]
		}
		binary.LittleEndian.PutUint32(c.bytes(dst+uint64(4*r), 4), uint32(best))
	}
}

func topK(c *call) {
	a := c.named()
	places, values, sums, x, inverse := c.ptr(), c.ptr(), c.ptr(), c.ptr(), c.ptr()
	width, k := c.int(), c.int()
	for r := range int(c.grid[0]) {
		from, factor := c.row(x, a, r*width, width), c.row(inverse, gpu.F32, r, 1).get(0)
		order := ranked(from, width)
		for i, place := range order[:k] {
			binary.LittleEndian.PutUint32(c.bytes(places+uint64(4*(r*k+i)), 4), uint32(place))
			c.row(values, gpu.F32, r*k+i, 1).set(0, from.get(int(place)))
		}
		sum := math.NaN()
		if sound(from, width) {
			sum = 0
			for i := range width {
				sum += math.Exp(float64(from.get(i)-from.get(int(order[0]))) * float64(factor))
			}
		}
		c.row(sums, gpu.F32, r, 1).set(0, float32(sum))
	}
}
