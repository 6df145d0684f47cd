package cpu

import "math"

// Keys and values may be kept in two bytes: rounded to the nearest, ties to even, once, when they
// are stored.

// floatToBfloat rounds to bfloat16, the upper half of a float32. A NaN stays one.
func floatToBfloat(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// floatToHalf rounds to IEEE binary16, subnormals included; what is too large becomes an infinity.
func floatToHalf(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, magnitude := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case x != x:
		return sign | 0x7e00
	case magnitude >= 0x47800000: // 65536: beyond what rounds down
		return sign | 0x7c00
	case magnitude < 0x38800000: // 2⁻¹⁴: a multiple of 2⁻²⁴
		const unit = 0x4b000000 // 2²³, whose unit in the last place is 1
		scaled := math.Float32frombits(magnitude) * (1 << 24)
		return sign | uint16(math.Float32bits(scaled+math.Float32frombits(unit))&0x7ff)
	}
	return sign | uint16((magnitude+0xfff+magnitude>>13&1-112<<23)>>13)
}

// narrowHalf and narrowBfloat round a row.
func narrowHalf(dst []uint16, src []float32) {
	for i := range dst {
		dst[i] = floatToHalf(src[i])
	}
}

func narrowBfloat(dst []uint16, src []float32) {
	for i := range dst {
		dst[i] = floatToBfloat(src[i])
	}
}
