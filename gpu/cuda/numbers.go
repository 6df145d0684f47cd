package cuda

import (
	"encoding/binary"
	"math"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// narrow writes numbers in the type t, little-endian.
func narrow(dst []byte, t gpu.DType, src []float32) {
	switch t {
	case gpu.F16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], cpu.Half(x))
		}
	case gpu.BF16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], cpu.Bfloat(x))
		}
	default:
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	}
}

// widen reads numbers of the type t.
func widen(dst []float32, t gpu.DType, src []byte) {
	switch t {
	case gpu.F16:
		for i := range dst {
			dst[i] = cpu.FromHalf(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case gpu.BF16:
		for i := range dst {
			dst[i] = cpu.FromBfloat(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}

// ints writes int32 numbers, little-endian.
func ints(dst []byte, src []int32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(v))
	}
}
