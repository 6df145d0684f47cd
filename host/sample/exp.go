package sample

import "math"

// The Taylor coefficients 1/2!, 1/3!, … of e^r, enough for |r| ≤ ln(2)/2 to an error below 2e-13.
const (
	c2  = 1.0 / 2
	c3  = c2 / 3
	c4  = c3 / 4
	c5  = c4 / 5
	c6  = c5 / 6
	c7  = c6 / 7
	c8  = c7 / 8
	c9  = c8 / 9
	c10 = c9 / 10
)

// exp is e^x for x in [-700, 0], and 0 below. It is faster than math.Exp and the same bits on every
// processor, which math.Exp is not: a choice must not change with the instance. The conversions
// keep the compiler from fusing a product with a sum.
func exp(x float64) float64 {
	if x < -700 {
		return 0
	}
	// 1.5*2^52 pushes the fraction out of the mantissa: k is x/ln(2), rounded.
	const shift = 0x1.8p52
	scaled := float64(x*math.Log2E) + shift
	k := scaled - shift
	// ln(2) in two parts, the first short enough for an exact product.
	r := x - float64(k*0x1.62e42feep-1)
	r -= float64(k * 0x1.a39ef35793c76p-33)
	r2 := float64(r * r)
	r4 := float64(r2 * r2)
	low := float64(1+r) + float64(r2*(c2+float64(r*c3)))
	high := float64(c4+float64(r*c5)) + float64(r2*(c6+float64(r*c7))) +
		float64(r4*(float64(c8+float64(r*c9))+float64(r2*c10)))
	y := low + float64(r4*high)
	// The integer k in scaled's low bits goes to the exponent.
	return math.Float64frombits(math.Float64bits(y) + math.Float64bits(scaled)<<52)
}
