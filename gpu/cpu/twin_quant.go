package cpu

import "github.com/kvrelay/engine/gpu"

// twinBlocks is a row of a quantised weight, block after block of 32 numbers.
type twinBlocks struct {
	dtype  gpu.DType
	supers []super
	length int // numbers in each of them
}

// newTwinBlocks takes a stored row apart.
func newTwinBlocks(dtype gpu.DType, data []byte) *twinBlocks {
	length, bytes := dtype.Block()
	b := &twinBlocks{dtype: dtype, length: length, supers: make([]super, len(data)/bytes)}
	for i := range b.supers {
		b.supers[i].takeApart(dtype, data[i*bytes:][:bytes])
	}
	return b
}

// number is the value of number k of the row.
func (b *twinBlocks) number(k int) float32 {
	return b.supers[k/b.length].number(b.dtype, k%b.length)
}

// product adds the row times 8-bit activations to sum, 32 numbers after another. The dot products
// of integers are exact, in int32 and as float32; each is weighted by the product of both scales,
// rounded. What the least values add follows each block's own product.
func (b *twinBlocks) product(x []float32, sum float32) float32 {
	f := formats[b.dtype]
	for k := 0; k < len(x); k += quantBlock {
		var q [quantBlock]int8
		scale, total := quantiseBlock(&q, (*[quantBlock]float32)(x[k:]))
		s, at := &b.supers[k/b.length], k%b.length
		step := quantBlock
		if f.kind == kindHalf {
			step = quantBlock / 2
		}
		for from := 0; from < quantBlock; from += step {
			dot := int32(0)
			for i := from; i < from+step; i++ {
				dot += int32(q[i]) * (int32(s.q[at+i]) - int32(f.offset))
			}
			both := float32(s.scaleAt(b.dtype, (at+from)/16) * scale)
			sum = fma32(float32(dot), both, sum)
		}
		if f.kind == kindLeast {
			sum = fma32(float32(float32(total)*scale), s.leastAt(b.dtype, at/32), sum)
		}
	}
	return sum
}
