package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Floats gives the values of a tensor of F32, F16 or BF16, all of which are exact in float32, in
// the order of its bytes.
func (t Tensor) Floats() ([]float32, error) {
	var value func(at int) float32
	switch t.DType {
	case F32:
		value = func(i int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case F16:
		value = func(i int) float32 { return Half(binary.LittleEndian.Uint16(t.Data[2*i:])) }
	case BF16:
		value = func(i int) float32 {
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
		}
	default:
		return nil, fmt.Errorf("tensor %q is %s; F32, F16 and BF16 are read", t.Name, t.DType)
	}
	out := make([]float32, len(t.Data)/t.DType.Bytes())
	for i := range out {
		out[i] = value(i)
	}
	return out, nil
}

// Half gives the value of an IEEE binary16.
func Half(h uint16) float32 {
	sign, exponent, mantissa := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch exponent {
	case 0:
		return float32(sign * math.Ldexp(mantissa, -24))
	case 31:
		if mantissa != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+mantissa, exponent-25))
}

// ToHalf rounds to IEEE binary16, subnormals included.
func ToHalf(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, magnitude := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case x != x:
		return sign | 0x7e00
	case magnitude >= 0x47800000: // 65536: beyond what rounds down
		return sign | 0x7c00
	case magnitude < 0x38800000: // 2⁻¹⁴: a multiple of 2⁻²⁴
		steps := math.RoundToEven(math.Ldexp(math.Abs(float64(x)), 24))
		return sign | uint16(steps)
	}
	rounded := magnitude + 0xfff + magnitude>>13&1
	return sign | uint16((rounded-112<<23)>>13)
}

// ToBrain rounds to bfloat16, the upper half of a float32.
func ToBrain(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1<<6 // quiet, and still no infinity
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
