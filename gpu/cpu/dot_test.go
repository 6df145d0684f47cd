package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// OpenWithoutDots opens a device of the classes with bf16 that does not multiply pairs, though the
// processor may, for the suite.
func OpenWithoutDots(threads int) (*Device, error) {
	d, err := Open(Options{Threads: threads, ISA: AVX512, BF16Activations: true})
	if err == nil {
		d.micro.roundPairs = nil // Pack then leaves weights in single k.
	}
	return d, err
}

// bfloatCase is a product in the classes with bf16: activations [rows][k], weights [k][columns],
// and where the chains start.
type bfloatCase struct {
	rows, panels, k int
	x, w, init      []float32
}

func newBfloatCase(r *rand.Rand, rows, panels int) *bfloatCase {
	c := &bfloatCase{rows: rows, panels: panels, k: 1 + r.IntN(40)}
	width := panels * panelRows
	draw := func(n int, one func() float32) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = one()
		}
		return out
	}
	number := func() float32 { return nearFlush(r) }
	if r.IntN(2) == 0 {
		number = func() float32 { return bfloatToFloat(floatToBfloat(float32(r.NormFloat64()))) }
	}
	c.x, c.w = draw(rows*c.k, number), draw(c.k*width, number)
	c.init = draw(rows*width, func() float32 {
		if r.IntN(3) == 0 {
			return anyFloat(r)
		}
		return nearFlush(r) * nearFlush(r) // often subnormal
	})
	return c
}

// want is what the class says.
func (c *bfloatCase) want() []float32 {
	width := c.panels * panelRows
	out, column := make([]float32, c.rows*width), make([]float32, c.k)
	for i := range out {
		for k := range column {
			column[k] = c.w[k*width+i%width]
		}
		out[i] = bfloatSum(c.x[i/width*c.k:][:c.k], column, c.init[i])
	}
	return out
}

// run calls a kernel; pairs says what it reads.
func (c *bfloatCase) run(kernel tileKernel, pairs bool) []float32 {
	width, steps, stepBytes := c.panels*panelRows, c.k, 2*panelRows
	if pairs {
		steps, stepBytes = (c.k+1)/2, 4*panelRows
	}
	panels, x := newMemory(c.panels*steps*stepBytes), make([]float32, c.rows*c.k)
	w := numbers[uint16](panels)
	for i := range w {
		w[i] = padWeight
	}
	for i, v := range c.w {
		panel, lane, k := i%width/panelRows, i%panelRows, i/width
		if pairs {
			w[pairPlace(panel*steps*panelRows+lane, k)] = floatToBfloat(v)
		} else {
			w[(panel*steps+k)*panelRows+lane] = floatToBfloat(v)
		}
	}
	for r := range c.rows {
		if pairs {
			roundPairsGo(&pairCall{n: c.k, from: address(c.x, r*c.k), to: address(x, r*steps)})
		} else {
			tdpSplitGo(&tdpSplit{n: c.k, from: address(c.x, r*c.k), to: address(x, r*steps),
				planes: 1})
		}
	}
	out := make([]float32, c.rows*width)
	t := &tile{k: steps, a: address(x, 0), lda: uintptr(4 * steps), b: panels.at(0),
		ldb: uintptr(stepBytes), panel: uintptr(steps * stepBytes), c: address(out, 0),
		ldc: uintptr(4 * width), init: address(c.init, 0), ldi: uintptr(4 * width)}
	if !pairs {
		t.mode[1] = flushMode
	}
	kernel(t)
	return out
}

// TestBfloatKernels holds every tile kernel of the classes with bf16, on numbers around 2⁻¹²⁶ too,
// to what they say.
func TestBfloatKernels(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	check := func(name string, m *micro, kind tileKind) {
		t.Run(name, func(t *testing.T) {
			kernels := 0
			try := func(kernel tileKernel, rows, panels int) {
				if kernel == nil {
					return
				}
				kernels++
				for range 6 {
					c := newBfloatCase(r, rows, panels)
					same(t, seed, c.run(kernel, kind == kindPairs), c.want())
				}
			}
			for rows := 1; rows <= m.tall; rows++ {
				try(m.tiles[kind][rows], rows, 1)
				try(m.pairs[kind][rows], rows, pairPanels)
			}
			try(m.wide[kind], 1, widePanels)
			if kernels <= m.tall {
				t.Errorf("%d kernels for tiles of up to %d rows", kernels, m.tall)
			}
			if sub := unflushed * 0.5; sub == 0 {
				t.Error("the processor still flushes after a kernel")
			}
		})
	}
	check("plain", goMicro(), tileKind(gpu.BF16))
	for _, isa := range []ISA{AVX2, AVX512} {
		if m := fastMicro(isa); m != nil {
			check(string(isa), m, tileKind(gpu.BF16))
		}
	}
	if dots := fastDots(); dots != nil {
		m := fastMicro(AVX512)
		m.take(dots)
		check("pairs", m, kindPairs)
	}
}

// unflushed is a subnormal number that the compiler does not know.
var unflushed = float32(0x1p-140)

// TestRoundPairs holds the assembly that rounds activations to its Go twin.
func TestRoundPairs(t *testing.T) {
	dots := fastDots()
	if dots == nil {
		t.Skip("this processor does not multiply pairs of bfloat16")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 200 {
		x := make([]float32, n+1)
		for i := range x {
			x[i] = anyFloat(r)
		}
		round := func(kernel func(*pairCall)) []float32 {
			to, out := make([]uint16, (n+2)/2*2), []float32{}
			kernel(&pairCall{n: n + 1, from: address(x, 0), to: unsafe.Pointer(&to[0])})
			for _, bits := range to {
				out = append(out, bfloatToFloat(bits))
			}
			return out
		}
		got, want := round(dots.round), round(roundPairsGo)
		same(t, seed, got, want)
		for i, v := range x {
			same(t, seed, got[pairPlace(0, 0)+i/2*2-i%2:][:1],
				[]float32{bfloatToFloat(floatToBfloat(v))})
		}
	}
}

// TestDotsAreCheckedAtTheStart: a processor that sums in another order, does not flush, or rounds
// otherwise is found.
func TestDotsAreCheckedAtTheStart(t *testing.T) {
	plain := func(sum func(x, w []float32, sum float32) float32) *dotMicro {
		d := &dotMicro{round: roundPairsGo}
		kernel := func(rows, panels int) tileKernel {
			return func(c *tile) { dotTwin(c, rows, panels, sum) }
		}
		for rows := range d.tiles {
			d.tiles[rows], d.pairs[rows] = kernel(rows, 1), kernel(rows, pairPanels)
		}
		d.wide = kernel(1, widePanels)
		return d
	}
	if !plain(bfloatSum).agrees() {
		t.Fatal("the plain form does not agree with itself")
	}
	for name, sum := range map[string]func(x, w []float32, sum float32) float32{
		"the lower number of a pair first": func(x, w []float32, sum float32) float32 {
			for k := 0; k < len(x); k += 2 {
				sum = bfloatSum([]float32{x[k+1], x[k]}, []float32{w[k+1], w[k]}, sum)
			}
			return sum
		},
		"one rounding a pair": func(x, w []float32, sum float32) float32 {
			for k := 0; k < len(x); k += 2 {
				sum = flush(float32(float64(flush(sum)) + float64(x[k])*float64(w[k]) +
					float64(x[k+1])*float64(w[k+1])))
			}
			return sum
		},
		"no flush": func(x, w []float32, sum float32) float32 {
			for k, v := range w {
				sum = fma32(x[k], v, sum)
			}
			return sum
		},
	} {
		if plain(sum).agrees() {
			t.Errorf("%s: was not found", name)
		}
	}
	dots := plain(bfloatSum)
	dots.round = func(c *pairCall) {
		roundPairsGo(c)
		*(*uint32)(c.to) ^= 1 << 16
	}
	if dots.agrees() {
		t.Error("a wrong last bit of an activation was not found")
	}
}

// dotTwin is a tile kernel for pairs, with a sum of its own.
func dotTwin(c *tile, rows, panels int, sum func(x, w []float32, sum float32) float32) {
	x, w := make([]float32, 2*c.k), make([]float32, 2*c.k)
	for r := range rows {
		for column := range panels * panelRows {
			for k := range x {
				at := uintptr(2 * pairPlace(0, k) % 4)
				pair := unsafe.Add(c.a, uintptr(r)*c.lda+uintptr(k/2*4)+at)
				x[k] = bfloatToFloat(*(*uint16)(pair))
				weight := unsafe.Add(c.b, uintptr(column/panelRows)*c.panel+
					uintptr(2*pairPlace(column%panelRows, k)))
				w[k] = bfloatToFloat(*(*uint16)(weight))
			}
			init := *(*float32)(unsafe.Add(c.init, uintptr(r)*c.ldi+uintptr(4*column)))
			*(*float32)(unsafe.Add(c.c, uintptr(r)*c.ldc+uintptr(4*column))) = sum(x, w, init)
		}
	}
}

// TestPairsPlaced: a packed row comes back, whatever the number of columns, in a device that has
// pairs and in one that has none.
func TestPairsPlaced(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for _, cols := range []int{1, 2, 7, 64, 129} {
		for _, pairs := range []bool{false, true} {
			t.Run(fmt.Sprint(cols, pairs), func(t *testing.T) {
				const rows = 21
				data := make([]byte, 2*rows*cols)
				for i := range data {
					data[i] = byte(r.Uint32() & 0x7e)
				}
				p := &packed{rows: rows, cols: cols, dtype: gpu.BF16, pairs: pairs}
				p.memory = newMemory(p.panels() * p.panelBytes())
				j := packJob{m: p, parts: []gpu.Tensor{{Rows: rows, Cols: cols,
					DType: gpu.BF16, Data: data}}}
				for panel := range p.panels() {
					j.do(0, panel)
				}
				m := &matrix{rows: rows, cols: cols, parts: []*packed{p}}
				got, want := make([]float32, cols), make([]float32, cols)
				for row := range rows {
					m.row(got, row, 1)
					for k := range want {
						want[k] = element(gpu.BF16, data[2*row*cols:], k)
					}
					same(t, seed, got, want)
				}
			})
		}
	}
}
