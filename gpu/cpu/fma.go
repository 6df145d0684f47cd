package cpu

import "math"

// fma32 is a*b + c in float32 with a single rounding, on every machine. The float64 product of
// two float32 is exact, so only the sum rounds, whether the compiler fuses it or not.
func fma32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if delicate(s) {
		return fmaOdd(a, b, c)
	}
	return float32(s)
}

// delicate says whether rounding a sum first to float64 and now to float32 may differ from rounding
// it once: only where s lies exactly between two neighbouring float32, because no sum is rounded
// across such a midpoint, and below 2^-125, where float32 has other midpoints.
func delicate(s float64) bool {
	const (
		dropped  = 1<<29 - 1 // the bits of a float64 mantissa that float32 lacks
		midpoint = 1 << 28
		smallest = (1023 - 125) << 53 // the bits of 2^-125 without the sign
	)
	bits := math.Float64bits(s)
	return bits&dropped == midpoint || bits<<1 < smallest
}

// fmaOdd is fma32 without a shortcut. It rounds the sum to odd before it becomes a float32 (Boldo
// and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding
// to odd", 2008): 53 bits are at least 24+2, so the second rounding sees on which side of a
// midpoint the exact sum is.
func fmaOdd(a, b, c float32) float32 {
	return float32(sumToOdd(float64(a)*float64(b), float64(c)))
}

// sumToOdd is p + q rounded to odd: of a sum that is not exact the last bit is 1.
func sumToOdd(p, q float64) float64 {
	s := p + q
	if math.IsInf(s, 0) || math.IsNaN(s) {
		return s
	}
	back := s - p
	rest := (p - (s - back)) + (q - back) // exact: s + rest = p + q (Knuth)
	if bits := math.Float64bits(s); rest != 0 && bits&1 == 0 {
		if (rest > 0) == (s > 0) {
			s = math.Float64frombits(bits + 1)
		} else {
			s = math.Float64frombits(bits - 1)
		}
	}
	return s
}
