package cpu

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// The elementary functions of the kernels. Their steps are part of the numerics class: every path
// takes the same steps in the same order, so that all give the same bits. The functions of package
// math would not do: the compiler may fuse their products and sums on some machines.

// Constants of exp32: Cody and Waite's split of ln 2 and the minimax polynomial of the Cephes
// library's expf. The assembly generator holds the same numbers.
const (
	expLow   float32 = -87.33654 // below, the result is 0: no denormals come out
	expHigh  float32 = 88.37626  // above, the result is +Inf
	log2e    float32 = 1.44269504088896341
	ln2High  float32 = 0.693359375
	ln2Low   float32 = -2.12194440e-4
	expMagic float32 = 12582912 // 1.5·2²³: adding it rounds to an integer in the low bits
	expP0    float32 = 1.9875691500e-4
	expP1    float32 = 1.3981999507e-3
	expP2    float32 = 8.3334519073e-3
	expP3    float32 = 4.1665795894e-2
	expP4    float32 = 1.6666665459e-1
	expP5    float32 = 5.0000001201e-1
)

// exp32 is eˣ to about one unit in the last place, within [expLow, expHigh].
func exp32(x float32) float32 {
	if x < expLow {
		return 0
	}
	if x > expHigh {
		return float32(math.Inf(1))
	}
	t := fma32(x, log2e, expMagic)
	n := t - expMagic
	r := fma32(n, -ln2High, x)
	r = fma32(n, -ln2Low, r)
	p := fma32(expP0, r, expP1)
	p = fma32(p, r, expP2)
	p = fma32(p, r, expP3)
	p = fma32(p, r, expP4)
	p = fma32(p, r, expP5)
	square := float32(r * r)
	y := float32(fma32(p, square, r) + 1)
	power := (math.Float32bits(t) - math.Float32bits(expMagic) + 127) << 23
	return float32(y * math.Float32frombits(power))
}

// silu is x/(1+e⁻ˣ).
func silu(x float32) float32 { return x / (1 + exp32(-x)) }

const (
	geluCubic float32 = 0.044715
	geluSlope float32 = 1.5957691216057308 // 2·sqrt(2/π)
)

// geluTanh is 0.5·x·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))), written with tanh(y) = 2/(1+e⁻²ʸ) - 1.
func geluTanh(x float32) float32 {
	square := float32(x * x)
	inner := fma32(square, geluCubic, 1)
	y := float32(float32(x*inner) * geluSlope)
	return x / (1 + exp32(-y))
}

// tanh32 is 2/(1+e⁻²ʸ) - 1.
func tanh32(y float32) float32 { return float32(2/(1+exp32(-2*y))) - 1 }

// capped is a score q·k after its scale and its soft bound; without a bound it stays as it is, and
// softmaxBlock scales it.
func capped(score float32, a *gpu.AttentionArgs) float32 {
	if a.Cap == 0 {
		return score
	}
	return a.Cap * tanh32(float32(score*a.Scale)/a.Cap)
}

// scaleBehindCap is what softmaxBlock multiplies scores by that capped has gone over.
func scaleBehindCap(a *gpu.AttentionArgs) float32 {
	if a.Cap > 0 {
		return 1
	}
	return a.Scale
}

// sincos gives the sine and cosine of a finite angle of at most about 10⁹. math.FMA is exact on
// every machine, in hardware or not, and each product outside it stands in a conversion, so nothing
// is left to the compiler. The polynomials are those of FreeBSD's msun (k_sin.c, k_cos.c) on [-π/4,
// π/4].
func sincos(angle float64) (sin, cos float64) {
	const (
		twoOverPi = 2 / math.Pi
		halfPi1   = 1.5707963267948966    // the float64 nearest π/2
		halfPi2   = 6.123233995736766e-17 // π/2 - halfPi1
	)
	n := math.Floor(math.FMA(angle, twoOverPi, 0.5))
	r := math.FMA(-n, halfPi1, angle)
	r = math.FMA(-n, halfPi2, r)
	square := float64(r * r)
	s := sinPolynomial(r, square)
	c := cosPolynomial(square)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

func sinPolynomial(r, square float64) float64 {
	p := math.FMA(square, 1.58969099521155010221e-10, -2.50507602534068634195e-08)
	p = math.FMA(square, p, 2.75573137070700676789e-06)
	p = math.FMA(square, p, -1.98412698298579493134e-04)
	p = math.FMA(square, p, 8.33333333332248946124e-03)
	p = math.FMA(square, p, -1.66666666666666324348e-01)
	return math.FMA(float64(square*r), p, r)
}

func cosPolynomial(square float64) float64 {
	p := math.FMA(square, -1.13596475577881948265e-11, 2.08757232129817482790e-09)
	p = math.FMA(square, p, -2.75573143513906633035e-07)
	p = math.FMA(square, p, 2.48015872894767294178e-05)
	p = math.FMA(square, p, -1.38888888888741095749e-03)
	p = math.FMA(square, p, 4.16666666666666019037e-02)
	p = math.FMA(square, p, -0.5)
	return math.FMA(square, p, 1)
}
