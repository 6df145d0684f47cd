package cpu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
)

// anyFloat draws float32 of every kind: any bit pattern, or near ones that cancel.
func anyFloat(r *rand.Rand) float32 {
	switch r.IntN(4) {
	case 0:
		return math.Float32frombits(r.Uint32())
	case 1:
		return math.Float32frombits(r.Uint32() & 0x807fffff) // subnormal
	case 2:
		return float32(r.NormFloat64())
	}
	return float32(math.Ldexp(float64(1+r.IntN(1<<12)), r.IntN(40)-20))
}

// exactFMA rounds once, with arbitrary precision.
func exactFMA(a, b, c float32) float32 {
	exact := func(x float32) *big.Float {
		return new(big.Float).SetPrec(2000).SetFloat64(float64(x))
	}
	p := exact(a)
	p.Mul(p, exact(b))
	p.Add(p, exact(c))
	f, _ := p.Float32()
	return f
}

func TestFMARoundsOnce(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300_000 {
		a, b, c := anyFloat(r), anyFloat(r), anyFloat(r)
		if r.IntN(3) == 0 { // a sum that nearly cancels, or lies near a midpoint
			c = -float32(float64(a)*float64(b)) * float32(1+float64(r.IntN(3)-1)/(1<<24))
		}
		if r.IntN(3) == 0 { // a product far below half a unit of c
			c = math.Float32frombits(r.Uint32()&0xff | 0x3f800000)
			a, b = float32(math.Ldexp(1, -24)), 1+float32(r.IntN(3)-1)/(1<<23)
		}
		if s := float64(a) + float64(b) + float64(c); math.IsNaN(s) || math.IsInf(s, 0) {
			continue
		}
		got, odd, want := fma32(a, b, c), fmaOdd(a, b, c), exactFMA(a, b, c)
		if math.IsInf(float64(a)*float64(b), 0) || want == 0 && got == 0 {
			continue // the sign of an exact zero is float64's own
		}
		if math.Float32bits(got) != math.Float32bits(want) || got != odd {
			t.Fatalf("seed %d: fma(%v, %v, %v) = %v, or %v to odd; want %v",
				seed, a, b, c, got, odd, want)
		}
	}
}

func TestExp(t *testing.T) {
	worst := 0.0
	for x := float32(-87.3); x < 88.3; x += 0.0137 {
		want := math.Exp(float64(x))
		worst = max(worst, math.Abs(float64(exp32(x))-want)/want)
	}
	if worst > 2e-7 {
		t.Errorf("relative error %.3g, want at most 2e-7", worst)
	}
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	if exp32(0) != 1 || exp32(-inf) != 0 || exp32(-88) != 0 ||
		exp32(89) != inf || exp32(inf) != inf {
		t.Error("exp32 is wrong at the ends of its range")
	}
	if e := exp32(nan); e == e {
		t.Error("exp32 hides a NaN")
	}
}

func TestGates(t *testing.T) {
	for x := -30.0; x < 30; x += 0.01 {
		want := x / (1 + math.Exp(-x))
		if got := float64(silu(float32(x))); math.Abs(got-want) > 4e-7*max(1, math.Abs(want)) {
			t.Fatalf("silu(%v) = %v, want %v", x, got, want)
		}
		inner := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
		want = 0.5 * x * (1 + math.Tanh(inner))
		if got := float64(geluTanh(float32(x))); math.Abs(got-want) > 2e-6*max(1, math.Abs(want)) {
			t.Fatalf("geluTanh(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestSincos(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		angle := r.Float64() * math.Pow(10, float64(r.IntN(9)-2))
		s, c := sincos(angle)
		ws, wc := math.Sincos(angle)
		if math.Abs(s-ws) > 2e-15 || math.Abs(c-wc) > 2e-15 {
			t.Fatalf("sincos(%v) = %v, %v; want %v, %v", angle, s, c, ws, wc)
		}
	}
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		sign, exponent, mantissa := 1.0, h>>10&31, float64(h&1023)
		if h>>15 == 1 {
			sign = -1
		}
		want := sign * math.Ldexp(1024+mantissa, exponent-25)
		if exponent == 0 {
			want = sign * math.Ldexp(mantissa, -24)
		}
		if exponent == 31 {
			continue
		}
		if got := halfToFloat(uint16(h)); float64(got) != want {
			t.Fatalf("half %04x is %v, want %v", h, got, want)
		}
	}
	if x := halfToFloat(0xfc00); !math.IsInf(float64(x), -1) {
		t.Errorf("half fc00 is %v, want -Inf", x)
	}
}

// TestRowFunctions holds the assembly of the row functions to their Go twins on every kind of
// number.
func TestRowFunctions(t *testing.T) {
	for _, isa := range []ISA{AVX2, AVX512} {
		if fast := fastMicro(isa); fast != nil {
			t.Run(string(isa), func(t *testing.T) { checkRowFunctions(t, fast, goMicro()) })
		}
	}
}

func checkRowFunctions(t *testing.T, fast, plain *micro) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		var a, b [attentionBlock]float32
		for i := range a {
			a[i] = anyFloat(r)
			if r.IntN(2) == 0 {
				a[i] = float32(r.NormFloat64() * 30)
			}
		}
		b = a
		for i := range fast.gates {
			x, y := a, b
			fast.gates[i](x[:61], a[:61], b[:61])
			plain.gates[i](y[:61], a[:61], b[:61])
			same(t, seed, x[:], y[:])
		}
	}
}

// TestSoftmax holds softmax over the lines of a tile to softmaxStep, line by line.
func TestSoftmax(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for _, isa := range []ISA{Go, AVX2, AVX512} {
		m, err := choose(isa, false)
		if err != nil {
			continue
		}
		for i := range 2000 {
			checkSoftmax(t, seed, r, m, 1+i%m.tall)
		}
	}
}

func checkSoftmax(t *testing.T, seed uint64, r *rand.Rand, m *micro, lines int) {
	var scores [tileRows * scoreStride]float32
	var tops, totals [tileRows + 1]float32
	for i := range scores {
		scores[i] = anyFloat(r)
		if r.IntN(2) == 0 {
			scores[i] = float32(r.NormFloat64() * 30)
		}
	}
	for i := range tops {
		tops[i], totals[i] = float32(r.NormFloat64()*50), r.Float32()*9
	}
	want, states := scores, [2][tileRows + 1]float32{tops, totals}
	const width = 2 * panelRows
	var output, scaled [tileRows * width]float32
	for i := range output {
		output[i] = anyFloat(r)
	}
	scaled = output
	for i := range lines {
		line := softLine{tops[i], totals[i]}
		at := i*scoreStride + keyLanes
		correction := softmaxStep((*[attentionBlock]float32)(want[at:]), 0.25, &line)
		scaleRow(scaled[i*width:][:width], correction)
		states[0][i], states[1][i] = line.top, line.total
	}
	c := softmaxCall{scores: (*[attentionBlock]float32)(scores[keyLanes:]), lines: lines,
		top: &tops[0], total: &totals[0], scale: 0.25, output: &output[0], width: width,
		powers: new(softPowers)}
	m.softmax(&c)
	same(t, seed, scores[:], want[:])
	same(t, seed, tops[:], states[0][:])
	same(t, seed, totals[:], states[1][:])
	same(t, seed, output[:], scaled[:])
}

// TestSoftmaxEnd holds the weights about the end of exp32's range, all of them, to exp32.
func TestSoftmaxEnd(t *testing.T) {
	for _, isa := range []ISA{AVX2, AVX512} {
		m := fastMicro(isa)
		if m == nil {
			continue
		}
		var scores, want [scoreStride]float32
		c := softmaxCall{scores: (*[attentionBlock]float32)(scores[keyLanes:]), lines: 1, scale: 1,
			powers: new(softPowers)}
		last := math.Float32bits(-89)
		for bits := math.Float32bits(-86); bits < last; bits += attentionBlock {
			var top, total float32
			var output [panelRows]float32
			c.top, c.total, c.output, c.width = &top, &total, &output[0], panelRows
			for i := range uint32(attentionBlock) {
				scores[keyLanes+i] = math.Float32frombits(bits + i)
				want[keyLanes+i] = exp32(scores[keyLanes+i])
			}
			if m.softmax(&c); scores != want {
				t.Fatalf("%s: weights %v, want %v", isa, scores, want)
			}
		}
	}
}

func same(t *testing.T, seed uint64, got, want []float32) {
	t.Helper()
	for i := range want {
		nans := got[i] != got[i] && want[i] != want[i]
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !nans {
			t.Fatalf("seed %d: value %d is %v, want %v", seed, i, got[i], want[i])
		}
	}
}

// TestNarrow: what is rounded lies nearest, of two equally near ones at the even one.
func TestNarrow(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	forms := []struct {
		narrow func(float32) uint16
		widen  func(uint16) float32
		most   float64
	}{{floatToHalf, halfToFloat, 65520}, {floatToBfloat, bfloatToFloat, 3.3895e38}}
	for range 300_000 {
		x := anyFloat(r)
		for i, f := range forms {
			bits := f.narrow(x)
			got := f.widen(bits)
			if x != x {
				if got == got {
					t.Fatalf("form %d: a NaN became %v", i, got)
				}
				continue
			}
			if math.Abs(float64(x)) >= f.most {
				continue
			}
			distance := math.Abs(float64(got) - float64(x))
			for _, other := range []uint16{bits - 1, bits + 1} {
				o := float64(f.widen(other))
				if math.IsNaN(o) || math.Signbit(o) != math.Signbit(float64(got)) {
					continue
				}
				if d := math.Abs(o - float64(x)); d < distance || d == distance && bits&1 == 1 {
					t.Fatalf("seed %d, form %d: %v became %v; %v is nearer", seed, i, x, got, o)
				}
			}
		}
	}
	if floatToHalf(65520) != 0x7c00 || floatToHalf(65519) != 0x7bff ||
		floatToHalf(float32(math.Inf(-1))) != 0xfc00 {
		t.Error("the end of the range of f16")
	}
	dst, plain, src := make([]uint16, 37), make([]uint16, 37), make([]float32, 37)
	fast := fastMicro(AVX2)
	for range 1000 {
		for i := range src {
			if src[i] = anyFloat(r); src[i] != src[i] {
				src[i] = 1
			}
		}
		if fast != nil {
			fast.narrow[gpu.F16](dst, src)
			if narrowHalf(plain, src); !slices.Equal(dst, plain) {
				t.Fatalf("seed %d: %v became %x, want %x", seed, src, dst, plain)
			}
		}
	}
}
