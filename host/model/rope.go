package model

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// ropeFor reads the rotation that all layers of a plain model share: pair i of a head turns by
// rope_theta^(-2i/dim) radians a position.
func ropeFor(s *settings, dim int) *gpu.Rope {
	theta := ropeTheta(s)
	rope := &gpu.Rope{Scale: 1}
	for i := range dim / 2 {
		rope.Freqs = append(rope.Freqs, power(theta, -2*float64(i)/float64(dim)))
	}
	return rope
}

// ropeTheta reads the base of the rotation and refuses any scaling of it. Newer files call the key
// rope_parameters and keep rope_theta inside.
func ropeTheta(s *settings) float64 {
	fallback := 10000.0
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		var r struct {
			Type    *string  `json:"rope_type"`
			OldType *string  `json:"type"`
			Theta   *float64 `json:"rope_theta"`
		}
		if !s.get(key, &r) {
			continue
		}
		if r.Type == nil {
			r.Type = r.OldType
		}
		if r.Type == nil {
			s.fail("%q has no rope_type", key)
		} else if *r.Type != "default" {
			s.fail("%q: rope_type %q is not supported", key, *r.Type)
		}
		if r.Theta != nil {
			fallback = *r.Theta
		}
	}
	return s.positive("rope_theta", fallback)
}

// power is base^exponent for a positive base, to about 10⁻¹⁴. math.Pow would not do: on some
// machines the compiler fuses its products and sums, and the angles, and so the tokens, must be the
// same on all.
func power(base, exponent float64) float64 {
	y := float64(exponent * logarithm(base))
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
