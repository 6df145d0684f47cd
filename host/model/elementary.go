package model

import "math"

// The elementary functions that reach the tokens. Those of package math would not do: on some
// machines the compiler fuses their products and sums, and the angles and the weights of experts,
// and so the tokens, must be the same on all.

// power is base^exponent for a positive base, to about 10⁻¹⁴.
func power(base, exponent float64) float64 {
	return exponential(float64(exponent * logarithm(base)))
}

// exponential is eʸ; what is below the smallest normal float64 may become 0.
func exponential(y float64) float64 {
	if y < -708 {
		return 0
	}
	n := math.Floor(math.FMA(y, 1/math.Ln2, 0.5))
	const ln2Rest = 2.319046813846299558e-17 // ln 2 - math.Ln2
	r := math.FMA(-n, ln2Rest, math.FMA(-n, math.Ln2, y))
	sum := 1.0
	for k := 18; k >= 1; k-- { // Taylor's series, |r| <= 0.35
		sum = math.FMA(sum, float64(r/float64(k)), 1)
	}
	return math.Ldexp(sum, int(n))
}

// logarithm is ln x for a positive x, by 2·artanh((m-1)/(m+1)) with m in [√½, √2).
func logarithm(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = float64(2*m), e-1
	}
	f := (m - 1) / (m + 1)
	square := float64(f * f)
	sum := 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = math.FMA(sum, square, 1/float64(k))
	}
	return math.FMA(float64(e), math.Ln2, float64(float64(2*f)*sum))
}
