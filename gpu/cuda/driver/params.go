package driver

import (
	"fmt"
	"math"
)

// Int is the cell of a 4-byte integer parameter. Builders keep their counts in range: one outside
// is a broken invariant, since a kernel would see another number.
func Int(v int) uint64 {
	if v < math.MinInt32 || v > math.MaxInt32 {
		panic(fmt.Sprintf("driver: %d as a 4-byte parameter of a kernel", v))
	}
	return uint64(uint32(int32(v)))
}

// Float is the cell of a float32 parameter.
func Float(v float32) uint64 { return uint64(math.Float32bits(v)) }

// Address is the cell of a pointer parameter, so many bytes behind p.
func Address(p Pointer, offset int64) uint64 { return uint64(p) + uint64(offset) }
