package gputest

import (
	"fmt"
	"math"

	"github.com/kvrelay/engine/gpu"
)

// dtypes are all types of weights.
var dtypes = func() (all []gpu.DType) {
	for d := range gpu.DTypes {
		all = append(all, d)
	}
	return all
}()

func testMemory(p *pair) {
	b, err := p.device.Alloc(7)
	p.must(err)
	p.compare("fresh buffer", p.read(p.device, b), make([]float32, 7))
	p.must(p.device.Write(b, []float32{1, 2, 3}))
	part := make([]float32, 2)
	p.must(p.device.Read(part, b, 1))
	p.compare("elements [1, 3)", part, []float32{2, 3})
	if p.device.Read(part, b, 6) == nil || p.device.Write(b, make([]float32, 8)) == nil {
		p.Error("an access outside the buffer was not refused")
	}
	p.must(p.device.Sync())
}

func testEmbed(p *pair) {
	for _, dtype := range dtypes {
		width := cols(dtype, 19)
		table := p.tensor(dtype, 37, width)
		tokens := []int32{36, 0, 17, 17, 16, 15}
		p.same(fmt.Sprint("embed ", dtype), func(d gpu.Device) []float32 {
			dst := p.buffer(d, make([]float32, len(tokens)*width))
			p.must(d.Embed(dst, p.pack(d, table), tokens, 1.7))
			return p.read(d, dst)
		})
	}
}

func testNorm(p *pair) {
	for range 40 {
		a := gpu.NormArgs{Rows: p.between(1, 9), Dim: p.between(1, 200), Groups: p.between(0, 3),
			Eps: 1e-5, WeightOffset: float32(p.between(0, 1)), Accumulate: p.between(0, 1) == 1}
		a.Offset = p.between(0, 20)
		a.Stride = max(a.Groups, 1)*a.Dim + a.Offset + p.between(0, 30)
		if p.between(0, 3) == 0 {
			a.Offset, a.Stride = 0, 0
		}
		n := a.Rows * max(a.Stride, max(a.Groups, 1)*a.Dim)
		x, dst, weight := p.values(n), p.values(n), p.values(a.Dim)
		inPlace := p.between(0, 1) == 1
		p.same(fmt.Sprintf("norm %+v", a), func(d gpu.Device) []float32 {
			a := a
			a.X, a.Dst, a.Weight = p.buffer(d, x), p.buffer(d, dst), p.buffer(d, weight)
			if inPlace {
				a.Dst = a.X
			}
			p.must(d.Norm(a))
			return p.read(d, a.Dst)
		})
	}
}

func testMatMul(p *pair) {
	for i := range 16 * len(dtypes) {
		dtype := dtypes[i%len(dtypes)]
		rows, width := p.between(1, 20), cols(dtype, p.between(1, 70))
		if i%5 == 0 {
			rows, width = p.between(90, 110), cols(dtype, p.between(1, 600))
		}
		least := 1
		if p.unit() > 0 {
			// Of few sums, all may be near zero by chance, and their terms' rounding is not.
			rows, least = max(rows, 8), 16
		}
		parts := []gpu.Tensor{p.tensor(dtype, p.between(least, 100), width)}
		for len(parts) < p.between(1, 3) {
			parts = append(parts, p.tensor(dtype, p.between(1, 40), width))
		}
		p.matMul(p.between(0, 2), rows, p.values(rows*width), parts)
	}
}

// testMixed: parts of several types are one matrix.
func testMixed(p *pair) {
	for range 20 {
		var parts []gpu.Tensor
		for range p.between(2, 4) {
			dtype := dtypes[p.random.IntN(len(dtypes))]
			parts = append(parts, p.tensor(dtype, p.between(1, 70), 512))
		}
		rows := p.between(1, 9)
		if p.unit() > 0 {
			rows += 64
		}
		p.matMul(p.between(0, 2), rows, p.values(rows*512), parts)
		p.same("embed of mixed parts", func(d gpu.Device) []float32 {
			dst, table := p.buffer(d, make([]float32, 2*512)), p.pack(d, parts...)
			p.must(d.Embed(dst, table, []int32{0, int32(table.Rows() - 1)}, 0.3))
			return p.read(d, dst)
		})
	}
}

// matMul compares one product; start is 0 for a chain from zero, 1 from a bias, 2 from dst.
func (p *pair) matMul(start, rows int, x []float32, parts []gpu.Tensor) {
	p.Helper()
	n := 0
	for _, part := range parts {
		n += part.Rows
	}
	bias, dst := p.values(n), p.values(rows*n)
	what := fmt.Sprintf("matmul start %d, %d rows, %d outputs, %d columns of %v",
		start, rows, n, parts[0].Cols, parts[0].DType)
	p.same(what, func(d gpu.Device) []float32 {
		a := gpu.MatMulArgs{Dst: p.buffer(d, dst), X: p.buffer(d, x), W: p.pack(d, parts...),
			Rows: rows, Accumulate: start == 2}
		if a.W.Rows() != n || a.W.Cols() != parts[0].Cols {
			p.Fatalf("packed matrix is %dx%d", a.W.Rows(), a.W.Cols())
		}
		if start == 1 {
			a.Bias = p.buffer(d, bias)
		}
		p.must(d.MatMul(a))
		return p.read(d, a.Dst)
	})
}

// testMatMulSpecials feeds denormals, huge numbers, infinities and NaNs.
func testMatMulSpecials(p *pair) {
	if p.unit() > 0 {
		p.Skip("the order of a rounded device's sums decides which of them overflow")
	}
	specials := []float32{0, float32(math.Copysign(0, -1)), 1e-45, -3e-42, 1e-38, 3e38, -3e38, 1}
	for i := range 6 * len(dtypes) {
		if i == 4*len(dtypes) {
			specials = append(specials, float32(math.Inf(1)), float32(math.NaN()))
		}
		dtype := dtypes[i%len(dtypes)]
		rows, width := p.between(1, 8), cols(dtype, p.between(1, 40))
		x, often := p.values(rows*width), p.between(1, 4)
		for k := range x {
			if p.random.IntN(often) > 0 {
				x[k] = specials[p.random.IntN(len(specials))]
			}
		}
		w := p.tensor(dtype, p.between(1, 80), width)
		p.matMul(p.between(0, 2), rows, x, []gpu.Tensor{w})
	}
}

// testRowsAlone: a row's product does not depend on the rows beside it.
func testRowsAlone(p *pair) {
	const rows, n = 65, 150
	for _, dtype := range dtypes {
		cols := cols(dtype, 64)
		w := p.pack(p.device, p.tensor(dtype, n, cols))
		x := p.values(rows * cols)
		all := p.buffer(p.device, make([]float32, rows*n))
		p.must(p.device.MatMul(gpu.MatMulArgs{
			Dst: all, X: p.buffer(p.device, x), W: w, Rows: rows}))
		for r := range rows {
			one := p.buffer(p.device, make([]float32, n))
			p.must(p.device.MatMul(gpu.MatMulArgs{
				Dst: one, X: p.buffer(p.device, x[r*cols:][:cols]), W: w, Rows: 1}))
			want := make([]float32, n)
			p.must(p.device.Read(want, all, r*n))
			if !p.sameBits(p.read(p.device, one), want) {
				p.Fatalf("%v: row %d alone differs from row %d of %d", dtype, r, r, rows)
			}
		}
	}
}

func testGLU(p *pair) {
	for i := range 30 {
		a := gpu.GLUArgs{Rows: p.between(1, 70), Width: p.between(1, 90)}
		a.Activation = gpu.Activation(i % 2)
		src := p.values(a.Rows * a.Width * 2)
		for k := range src {
			src[k] *= 8
			if p.random.IntN(20) == 0 {
				src[k] *= 100
			}
		}
		p.round(src)
		p.same(fmt.Sprintf("glu %+v", a), func(d gpu.Device) []float32 {
			a := a
			a.GateUp, a.Dst = p.buffer(d, src), p.buffer(d, make([]float32, a.Rows*a.Width))
			p.must(d.GLU(a))
			return p.read(d, a.Dst)
		})
	}
}

// testGated: gates and ups in one go give what MatMul and GLU give one after the other.
func testGated(p *pair) {
	if _, ok := p.device.(gpu.Gater); !ok {
		p.Skip("the device has no MatMulGLU")
	}
	for i := range 6 * len(dtypes) {
		dtype := dtypes[i%len(dtypes)]
		g := gpu.GLUArgs{Rows: p.between(0, 70), Width: p.between(1, 150),
			Activation: gpu.Activation(i % 2)}
		if i%3 > 0 {
			g.Width = 16 * p.between(1, 9)
		}
		cols := cols(dtype, p.between(1, 40))
		x, w := p.values(g.Rows*cols), p.tensor(dtype, 2*g.Width, cols)
		bias := p.values(2 * g.Width)
		p.same(fmt.Sprintf("gated %v %+v", dtype, g), func(d gpu.Device) []float32 {
			g := g
			g.GateUp = p.buffer(d, make([]float32, g.Rows*2*g.Width))
			g.Dst = p.buffer(d, make([]float32, g.Rows*g.Width))
			m := gpu.MatMulArgs{Dst: g.GateUp, X: p.buffer(d, x), W: p.pack(d, w), Rows: g.Rows}
			if i%2 > 0 {
				m.Bias = p.buffer(d, bias)
			}
			if gater, ok := d.(gpu.Gater); ok {
				p.must(gater.MatMulGLU(m, g))
			} else {
				p.must(d.MatMul(m))
				p.must(d.GLU(g))
			}
			return p.read(d, g.Dst)
		})
	}
}

func testGather(p *pair) {
	src := p.values(12 * 5)
	p.same("gather", func(d gpu.Device) []float32 {
		dst := p.buffer(d, make([]float32, 3*5))
		p.must(d.Gather(dst, p.buffer(d, src), []int32{11, 0, 4}, 5))
		return p.read(d, dst)
	})
}

func testAddRows(p *pair) {
	for range 20 {
		a := gpu.AddRowsArgs{Width: p.between(1, 90)}
		total := p.between(1, 40)
		for r := range total {
			if p.between(0, 1) == 1 {
				a.Rows, a.Factors = append(a.Rows, int32(r)), append(a.Factors, p.values(1)[0])
			}
		}
		dst, x := p.values(total*a.Width), p.values(len(a.Rows)*a.Width)
		p.same(fmt.Sprintf("add %d of %d rows", len(a.Rows), total), func(d gpu.Device) []float32 {
			a := a
			a.Dst, a.X = p.buffer(d, dst), p.buffer(d, x)
			p.must(d.AddRows(a))
			return p.read(d, a.Dst)
		})
	}
}
