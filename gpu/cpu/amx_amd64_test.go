package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// modelledTiles are the tile kernels on the model of a processor.
func modelledTiles() (all [plainTypes][2]func(*amxCall)) {
	for dtype := range all {
		for blocks := range all[dtype] {
			all[dtype][blocks] = func(c *amxCall) {
				new(tileMachine).call(amxCode(2*dtype+blocks), c)
			}
		}
	}
	return all
}

// OpenModelled opens a device whose tile kernels run on the model of a processor, for the suite.
func OpenModelled(threads int) (*Device, error) {
	d, err := Open(Options{Threads: threads, ISA: AVX512, TDP: true})
	if err == nil {
		d.micro.tdp.amx = amxAsm()
		d.micro.tdp.amx.tiles = modelledTiles()
	}
	return d, err
}

// TestTileKernels holds the bytes of the tile kernels, read by the model, to the plain form, and
// lets them touch nothing but their operands.
func TestTileKernels(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for dtype := range plainTypes {
		for _, rows := range []int{1, 7, 16, 17, 30, 32} {
			for _, special := range []bool{false, true} {
				t.Run(fmt.Sprint(dtype, " ", rows, " ", special), func(t *testing.T) {
					checkTileKernel(t, r, seed, tileCase{dtype, rows, special})
				})
			}
		}
	}
}

// tileCase is a product; special ones have numbers around 2⁻¹²⁶.
type tileCase struct {
	dtype   gpu.DType
	rows    int
	special bool
}

func checkTileKernel(t *testing.T, r *rand.Rand, seed uint64, c tileCase) {
	const stretches, width = 3, 2 * panelRows
	form := &tdpForms[c.dtype]
	draw := func(n int) []uint16 {
		x := make([]uint16, n)
		for i := range x {
			v := float32(r.NormFloat64())
			if c.special {
				v = nearFlush(r)
			}
			x[i] = floatToBfloat(v)
		}
		return x
	}
	blocks := (c.rows + amxBlockRows - 1) / amxBlockRows
	block, panel := stretches*tileBytes/2, stretches*tileBytes/2 // numbers of a plane
	x, w := draw(form.xPlanes*blocks*block), draw(2*form.wPlanes*panel)
	init, got := make([]float32, c.rows*width), make([]float32, c.rows*width)
	for i := range init {
		init[i] = bfloatToFloat(draw(1)[0])
	}
	var config tileConfig
	config.set(c.rows)
	call := &amxCall{config: &config, stretches: stretches, x: unsafe.Pointer(&x[0]),
		xNext: uintptr(2 * block),
		w:     unsafe.Pointer(&w[0]), wNext: uintptr(2 * form.wPlanes * panel),
		c: unsafe.Pointer(&got[0]), ldc: width * 4, init: unsafe.Pointer(&init[0]), ldi: width * 4,
		xPlane: uintptr(2 * blocks * block), wPlane: uintptr(2 * panel)}
	m := &tileMachine{allowed: []region{regionOf(config[:], false), regionOf(x, false),
		regionOf(w, false), regionOf(init, false), regionOf(got, true)}}
	m.call(amxCode(2*int(c.dtype)+blocks-1), call)
	want := make([]float32, len(got))
	for row := range c.rows {
		for column := range width {
			sum := init[row*width+column]
			for s := range stretches {
				xs := x[row/16*block+s*512+row%16*32:]
				ws := w[column/16*form.wPlanes*panel+s*512+column%16*2:]
				for _, p := range form.products {
					even, odd := float32(0), float32(0)
					for i := range 16 {
						a, b := xs[p.x*blocks*block+2*i:], ws[p.w*panel+32*i:]
						even = fmaFlush(flushed(a[0]), flushed(b[0]), even)
						odd = fmaFlush(flushed(a[1]), flushed(b[1]), odd)
					}
					sum = addFlush(sum, addFlush(even, odd))
				}
			}
			want[row*width+column] = sum
		}
	}
	same(t, seed, got, want)
	if want := 3 * stretches * len(form.products); m.executed < want {
		t.Errorf("%d instructions for %d products of %d stretches", m.executed,
			len(form.products), stretches)
	}
}

// flushed is what a bfloat16 is to a tile.
func flushed(b uint16) float32 { return flush(bfloatToFloat(b)) }

// TestTilesAreCheckedAtTheStart: tiles that give other bits, in one type or one height, are found.
func TestTilesAreCheckedAtTheStart(t *testing.T) {
	if fastMicro(AVX512) == nil {
		t.Skip("this processor lacks AVX-512")
	}
	for dtype := range plainTypes {
		for blocks := range 2 {
			m := amxAsm()
			m.tiles = modelledTiles()
			if !m.agrees() {
				t.Fatal("the model's tiles do not agree")
			}
			right := m.tiles[dtype][blocks]
			m.tiles[dtype][blocks] = func(c *amxCall) {
				right(c)
				*(*uint32)(unsafe.Add(c.c, 4*c.ldc+68)) ^= 1
			}
			if m.agrees() {
				t.Errorf("%v, %d blocks: a wrong last bit was not found", dtype, blocks+1)
			}
		}
	}
}

// TestTileOperands holds the assembly that makes the operands of tiles to its Go twins.
func TestTileOperands(t *testing.T) {
	if fastMicro(AVX512) == nil {
		t.Skip("this processor lacks AVX-512")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	fast := amxAsm()
	for range 100 {
		n := 1 + r.IntN(150)
		stretches := (n + tdpStep - 1) / tdpStep
		x, w := make([]float32, n), make([]float32, n*panelRows)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		for i := range w {
			w[i] = float32(r.NormFloat64())
		}
		split := func(kernel func(*tdpSplit)) []uint16 {
			to := make([]uint16, maxPlanes*stretches*tileBytes/2)
			kernel(&tdpSplit{n: n, from: address(x, 0), to: unsafe.Pointer(&to[0]),
				plane: uintptr(stretches * tileBytes), planes: maxPlanes})
			return to
		}
		sameNumbers(t, seed, split(fast.split), split(amxSplitGo))
		for dtype := range plainTypes {
			widen := func(kernel func(*tdpWiden)) []uint16 {
				to := make([]uint16, maxPlanes*stretches*tileBytes/2)
				kernel(&tdpWiden{n: n, from: unsafe.Pointer(&w[0]), to: unsafe.Pointer(&to[0]),
					plane: uintptr(stretches * tileBytes)})
				return to
			}
			sameNumbers(t, seed, widen(fast.widen[dtype]),
				widen(func(c *tdpWiden) { amxWidenGo(c, dtype) }))
		}
	}
}

// sameNumbers compares bfloat16 as a tile sees them: subnormal ones as zeros, NaNs as NaNs.
func sameNumbers(t *testing.T, seed uint64, got, want []uint16) {
	t.Helper()
	for i := range want {
		a, b := flush(bfloatToFloat(got[i])), flush(bfloatToFloat(want[i]))
		if a != b && (a == a || b == b) {
			t.Fatalf("seed %d: number %d is %v, want %v", seed, i, a, b)
		}
	}
}
