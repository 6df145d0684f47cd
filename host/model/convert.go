package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// widen gives the values of stored numbers, all of which are exact in float32.
func widen(dtype gpu.DType, data []byte) []float32 {
	out := make([]float32, len(data)/dtype.Bytes())
	for i := range out {
		out[i] = valueAt(dtype, data, i)
	}
	return out
}

// valueAt is the value of number i.
func valueAt(dtype gpu.DType, data []byte, i int) float32 {
	switch dtype {
	case gpu.F16:
		return widenHalf(binary.LittleEndian.Uint16(data[2*i:]))
	case gpu.BF16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

// convert rewrites a tensor in another type, in memory of its own. What does not fit exactly is
// rounded to the nearest, ties to even; a finite number that would become infinite is an error.
func convert(t *gpu.Tensor, to gpu.DType) error {
	if t.DType == to {
		return nil
	}
	n := t.Rows * t.Cols
	data := make([]byte, n*to.Bytes())
	for i := range n {
		x := valueAt(t.DType, t.Data, i)
		if to == gpu.F32 {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
			continue
		}
		short, infinite := narrowBrain(x), uint16(0x7f80)
		if to == gpu.F16 {
			short, infinite = narrowHalf(x), 0x7c00
		}
		if short&0x7fff == infinite && !math.IsInf(float64(x), 0) {
			return fmt.Errorf("its weight %g is too large for %v", x, to)
		}
		binary.LittleEndian.PutUint16(data[2*i:], short)
	}
	t.DType, t.Data = to, data
	return nil
}

// narrowBrain rounds to bfloat16.
func narrowBrain(x float32) uint16 { return safetensors.ToBrain(x) }

// narrowHalf rounds to IEEE binary16.
func narrowHalf(x float32) uint16 { return safetensors.ToHalf(x) }

// widenHalf gives the value of an IEEE binary16.
func widenHalf(h uint16) float32 { return safetensors.Half(h) }
