package cpu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// nearFlush draws float32 that are bfloat16, often such that products of two lie around 2⁻¹²⁶.
func nearFlush(r *rand.Rand) float32 {
	x := float32(math.Ldexp(1+float64(r.IntN(128))/128, -r.IntN(8)))
	switch r.IntN(8) {
	case 0:
		x = bfloatToFloat(floatToBfloat(anyFloat(r)))
	case 1:
		x = 0
	default:
		x *= 0x1p-61
	}
	if r.IntN(2) == 0 {
		x = -x
	}
	return x
}

// TestFlushedFMA compares with arbitrary precision: round to 24 bits whatever the exponent, then
// take what is below 2⁻¹²⁶ for zero.
func TestFlushedFMA(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	flushes := 0
	for range 300_000 {
		a, b, c := flush(nearFlush(r)), flush(nearFlush(r)), flush(nearFlush(r)*nearFlush(r))
		if r.IntN(3) == 0 { // a sum that nearly cancels, or ends just above or below the smallest
			c = flush(-float32(float64(a)*float64(b)) * float32(1+float64(r.IntN(9)-4)/(1<<23)))
		}
		if s := float64(a)*float64(b) + float64(c); math.IsNaN(s) || math.Abs(s) > 3e38 {
			continue
		}
		exact := new(big.Float).SetPrec(2000).SetFloat64(float64(a))
		exact.Mul(exact, new(big.Float).SetFloat64(float64(b)))
		exact.Add(exact, new(big.Float).SetFloat64(float64(c)))
		rounded, _ := new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(exact).Float64()
		want := float32(rounded)
		if math.Abs(rounded) < smallestNormal {
			want = 0
			if rounded != 0 {
				flushes++
			}
		}
		if got := fmaFlush(a, b, c); got != want {
			t.Fatalf("seed %d: %v · %v + %v is %v, want %v", seed, a, b, c, got, want)
		}
	}
	if flushes < 1000 {
		t.Errorf("only %d results were flushed", flushes)
	}
}

// TestPlanes: the planes of a weight add up to it exactly, those of an activation as nearly as so
// many of 8 bits can, and each is a bfloat16.
func TestPlanes(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		x := float32(r.NormFloat64() * math.Exp(8*r.NormFloat64()))
		weights := [plainTypes]float32{gpu.F32: x, gpu.F16: halfToFloat(floatToHalf(x)),
			gpu.BF16: bfloatToFloat(floatToBfloat(x))}
		for dtype, f := range tdpForms {
			w, planes := weights[dtype], make([]float32, maxPlanes)
			if math.Abs(float64(w)) > 60000 {
				continue
			}
			splitWeight(planes[:f.wPlanes], w)
			checkPlanes(t, planes[:f.wPlanes], w, 0)
			splitActivation(planes[:f.xPlanes], x)
			checkPlanes(t, planes[:f.xPlanes], x, [4]float64{2: 0x1p-17}[f.xPlanes])
		}
	}
}

func checkPlanes(t *testing.T, planes []float32, x float32, most float64) {
	t.Helper()
	sum := 0.0
	for _, p := range planes {
		if math.Float32bits(p)&0xffff != 0 {
			t.Fatalf("plane %v of %v is no bfloat16", p, x)
		}
		sum += float64(p)
	}
	if off := math.Abs(sum - float64(x)); off > most*math.Abs(float64(x)) {
		t.Fatalf("the planes %v of %v add up to %v", planes, x, sum)
	}
}

// TestTDPKernels holds the assembly of the class tdp to its Go twins, around 2⁻¹²⁶ too.
func TestTDPKernels(t *testing.T) {
	for _, isa := range []ISA{AVX2, AVX512} {
		if fast := fastMicro(isa); fast != nil {
			t.Run(string(isa), func(t *testing.T) { checkTDPTiles(t, &fast.tdp) })
		}
	}
}

func checkTDPTiles(t *testing.T, fast *tdpMicro) {
	const stretches, planes = 3, 2
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = nearFlush(r)
		}
		return x
	}
	for round := range 60 {
		rows := 1 + round%fast.tall
		plane := rows * stretches * tdpStep
		x, w := draw(planes*plane), draw(planes*stretches*tdpStep*panelRows)
		init := draw(rows * panelRows)
		offsets := []tdpOffsets{{0, stretches * tdpStep * panelRows * 4}, {uintptr(plane) * 4, 0},
			{0, 0}}
		for i, v := range init {
			init[i] = float32(math.Ldexp(float64(v), -60)) // many subnormal
		}
		for i := range x { // the plain kernel gets what the processor takes them for
			x[i] = flush(x[i])
		}
		for i := range w {
			w[i] = flush(w[i])
		}
		run := func(kernel func(*tdpTile)) []float32 {
			c := make([]float32, rows*panelRows)
			kernel(&tdpTile{stretches: stretches, x: address(x, 0),
				ldx: stretches * tdpStep * 4, w: address(w, 0), c: address(c, 0),
				ldc: panelRows * 4, init: address(init, 0), ldi: panelRows * 4,
				products: len(offsets), offsets: &offsets[0], mode: [2]uint32{1: flushMode}})
			return c
		}
		same(t, seed, run(fast.tiles[rows]),
			run(func(c *tdpTile) { tdpTileGo(c, rows) }))
		if sub := float32(0x1p-140); sub*math.Float32frombits(0x3f000000) == 0 {
			t.Fatal("the processor still flushes after a kernel")
		}
	}
}

// TestTDPSplits holds the assembly that makes planes to its Go twins on numbers of every kind, but
// for subnormal planes, which the processor takes for zeros when it reads them.
func TestTDPSplits(t *testing.T) {
	plain := goTDPMicro()
	for _, isa := range []ISA{AVX2, AVX512} {
		fast := fastMicro(isa)
		if fast == nil {
			continue
		}
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		for range 300 {
			const n = 61
			x, w := make([]float32, n), make([]float32, n*panelRows)
			for i := range x {
				x[i] = anyFloat(r)
			}
			for i := range w { // a NaN's planes may be an infinity and a NaN
				if w[i] = anyFloat(r); w[i] != w[i] {
					w[i] = 1
				}
			}
			split := func(kernel func(*tdpSplit)) []float32 {
				to := make([]float32, maxPlanes*n)
				kernel(&tdpSplit{n: n, from: address(x, 0), to: address(to, 0), plane: n * 4,
					planes: maxPlanes})
				return flushAll(to)
			}
			same(t, seed, split(fast.tdp.split), split(plain.split))
			for dtype := range plain.widen {
				widen := func(kernel func(*tdpWiden)) []float32 {
					to := make([]float32, maxPlanes*n*panelRows)
					kernel(&tdpWiden{n: n, from: unsafe.Pointer(&w[0]), to: address(to, 0),
						plane: n * panelRows * 4})
					return flushAll(to)
				}
				same(t, seed, widen(fast.tdp.widen[dtype]), widen(plain.widen[dtype]))
			}
		}
	}
}

func flushAll(x []float32) []float32 {
	for i := range x {
		x[i] = flush(x[i])
	}
	return x
}
