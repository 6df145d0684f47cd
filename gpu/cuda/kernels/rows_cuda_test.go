//go:build cuda

package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// at is a pointer as launches take it.
func at(p driver.Pointer) kernels.Address { return kernels.Address(p) }

// widths are row widths: whole vectors, and what is left over.
var widths = []int{64, 7, 1, 129, 2048, 3000}

func TestEmbed(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		for i, width := range widths {
			table := types[i%len(types)].DType
			values := r.numbers(table, 9*width)
			tokens := []int32{8, 0, 3, 3, -1}
			var want []float64
			for _, token := range tokens {
				for k := range width {
					if token < 0 {
						want = append(want, 0)
					} else {
						want = append(want, 1.7*values[int(token)*width+k])
					}
				}
			}
			dst := r.alloc(len(want) * d.Bytes())
			r.run(kernels.Embed{Dst: at(dst), Table: at(r.upNumbers(table, values)),
				Tokens: at(r.upInts(tokens)), TableType: table, Rows: len(tokens), Width: width,
				Scale: 1.7}.Launch(d))
			r.close(fmt.Sprintf("embed %v, %d wide", table, width),
				r.downNumbers(d, dst, len(want)), want, width, tolerance)
		}
	})
}

// normData are the buffers of a norm.
type normData struct{ x, dst, add, weight []float64 }

// normed is what gpu.NormArgs says, with the residual sum that Add asks for.
func normed(a kernels.Norm, d gpu.DType, b normData) {
	x, dst, add, weight := b.x, b.dst, b.add, b.weight
	for v := range a.Rows * a.Groups {
		from := v/a.Groups*a.Stride + a.Offset + v%a.Groups*a.Dim
		var square float64
		for i := from; i < from+a.Dim; i++ {
			if add != nil {
				x[i] = decode(d, encode(d, []float64{x[i] + add[i]}))[0]
			}
			square += x[i] * x[i]
		}
		inverse := 1 / math.Sqrt(square/float64(a.Dim)+float64(a.Eps))
		for i := from; i < from+a.Dim; i++ {
			y := x[i] * inverse * (weight[i-from] + float64(a.WeightOffset))
			if a.Accumulate {
				y += dst[i]
			}
			dst[i] = y
		}
	}
}

func TestNorm(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		for i, dim := range []int{64, 128, 33, 1, 512, 513, 576, 2048, 4096} {
			a := kernels.Norm{Rows: r.between(1, 5), Groups: 1 + i%3, Dim: dim, Eps: 1e-5,
				WeightOffset: float32(i % 2), Accumulate: i%3 == 1}
			a.Offset = i % 2 * 16
			a.Stride = a.Groups*dim + a.Offset + i%4*8
			n := a.Rows * a.Stride
			x, dst, weight := r.numbers(d, n), r.numbers(d, n), r.numbers(d, dim)
			a.X, a.Weight = at(r.upNumbers(d, x)), at(r.upNumbers(d, weight))
			a.Dst = at(r.upNumbers(d, dst))
			var add []float64
			if i%4 > 1 {
				add = r.numbers(d, n)
				a.Add = at(r.upNumbers(d, add))
			}
			if i%5 == 4 {
				a.Dst, dst = a.X, x
			}
			r.run(a.Launch(d))
			normed(a, d, normData{x, dst, add, weight})
			what := fmt.Sprintf("norm %+v", a)
			r.close(what, r.downNumbers(d, driver.Pointer(a.Dst), n), dst, a.Stride, tolerance)
			r.close(what+", sums", r.downNumbers(d, driver.Pointer(a.X), n), x, a.Stride, tolerance)
		}
	})
}

func TestGLU(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		for i, width := range widths {
			rows := r.between(1, 6)
			src := r.numbers(d, rows*2*width)
			for k := range src {
				src[k] *= []float64{1, 8, 1, 1, 30}[k%5]
			}
			src = decode(d, encode(d, src))
			var want []float64
			for row := range rows {
				for k := range width {
					g, u := src[2*row*width+k], src[(2*row+1)*width+k]
					y := g
					if i%2 == 1 {
						y = 2 * math.Sqrt(2/math.Pi) * (g + 0.044715*g*g*g)
					}
					want = append(want, g/(1+math.Exp(-y))*u)
				}
			}
			dst := r.alloc(len(want) * d.Bytes())
			r.run(kernels.GLU{Dst: at(dst), GateUp: at(r.upNumbers(d, src)), Rows: rows,
				Width: width, Activation: gpu.Activation(i % 2)}.Launch(d))
			r.close(fmt.Sprintf("glu %d, %d wide", i%2, width),
				r.downNumbers(d, dst, len(want)), want, width, tolerance)
		}
	})
}

func TestRowsThatMove(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		for _, width := range widths {
			const rows = 7
			src, bias := r.numbers(d, rows*width), r.numbers(d, width)
			picked := []int32{6, 0, 3}
			factors := r.numbers(gpu.F32, len(picked))
			var gathered, biased []float64
			for _, p := range picked {
				gathered = append(gathered, src[int(p)*width:][:width]...)
				biased = append(biased, bias...)
			}
			x, from := r.upNumbers(d, src), at(r.upInts(picked))
			dst := r.alloc(len(gathered) * d.Bytes())
			r.run(kernels.Gather{Dst: at(dst), Src: at(x), Rows: from, Count: 3,
				Width: width}.Launch(d))
			r.close("gather", r.downNumbers(d, dst, len(gathered)), gathered, width, 0)

			r.run(kernels.AddRows{Dst: at(x), X: at(dst), Rows: from, Count: 3, Width: width,
				Factors: at(r.upNumbers(gpu.F32, factors))}.Launch(d))
			for i, p := range picked {
				for k := range width {
					src[int(p)*width+k] += factors[i] * gathered[i*width+k]
				}
			}
			r.close("add rows", r.downNumbers(d, x, len(src)), src, len(src), tolerance)

			r.run(kernels.Bias{Dst: at(dst), Bias: at(r.upNumbers(d, bias)), Rows: 3,
				Width: width}.Launch(d))
			r.close("bias", r.downNumbers(d, dst, len(biased)), biased, width, 0)
		}
	})
}

func TestConvert(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		const n = 5003
		values := r.numbers(gpu.F32, n)
		short, back := r.alloc(n*d.Bytes()), r.alloc(n*4)
		r.run(kernels.Convert{Dst: at(short), Src: at(r.upNumbers(gpu.F32, values)),
			Count: n}.FromFloat(d), kernels.Convert{Dst: at(back), Src: at(short),
			Count: n}.ToFloat(d))
		want := decode(d, encode(d, values))
		r.close("to the type", r.downNumbers(d, short, n), want, n, 0)
		r.close("and back", r.downNumbers(gpu.F32, back, n), want, n, 0)

		r.run(kernels.Fill{Dst: at(short), Count: n, Seed: 3, Scale: 2}.Launch(d))
		var sum, square float64
		for _, v := range r.downNumbers(d, short, n) {
			sum, square = sum+v, square+v*v
		}
		if mean, deviation := sum/n, math.Sqrt(square/n); math.Abs(mean) > 0.2 ||
			math.Abs(deviation-2) > 0.2 {
			r.Errorf("filled with mean %g and deviation %g, want 0 and 2", mean, deviation)
		}
	})
}

// TestRopeAppend: against the sines of package math, and slot by slot.
func TestRopeAppend(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		for i, dim := range []int{64, 128, 256, 34, 2} {
			stored := types[i%len(types)]
			const rows, heads, kvHeads = 5, 6, 2
			half := dim / 2
			if i%2 == 1 {
				half = max(1, dim/4)
			}
			shape := gpu.KVShape{Layers: 1, Pages: 3, PageSize: 5, KVHeads: kvHeads, HeadDim: dim,
				DType: stored.DType}
			freqs := make([]float64, half)
			var data []byte
			for k := range freqs {
				freqs[k] = math.Pow(10000, -float64(k)/float64(half))
				data = binary.LittleEndian.AppendUint64(data, math.Float64bits(freqs[k]))
			}
			positions := []int32{0, 1, 77, 100000, 4}
			slots := []int32{14, 2, 7, -1, 0}
			const width = heads + 2*kvHeads
			qkv := r.numbers(d, rows*width*dim)
			pool := r.up(make([]byte, kernels.PoolBytes(shape)))
			buffer, table := r.upNumbers(d, qkv), r.alloc(rows*half*8)
			r.run(kernels.RopeTable{Table: at(table), Positions: at(r.upInts(positions)),
				Freqs: at(r.up(data)), Rows: rows, Half: half, Scale: 1.1}.Launch(),
				kernels.RopeAppend{QKV: at(buffer), Layer: at(pool), Table: at(table),
					Slots: at(r.upInts(slots)), KVType: stored.DType, Rows: rows, Heads: heads,
					KVHeads: kvHeads, Dim: dim, Half: half, PageSize: shape.PageSize}.Launch(d))
			cache := make([]float64, shape.Pages*2*shape.PageSize*kvHeads*dim)
			for row := range rows {
				line := qkv[row*width*dim:][:width*dim]
				for h := range heads + kvHeads {
					rotate(line[h*dim:], freqs, float64(positions[row]), 1.1)
				}
				if slot := int(slots[row]); slot >= 0 {
					page, offset := slot/shape.PageSize, slot%shape.PageSize
					to := (page*2*shape.PageSize + offset) * kvHeads * dim
					copy(cache[to:], line[heads*dim:][:kvHeads*dim])
					copy(cache[to+shape.PageSize*kvHeads*dim:], line[(heads+kvHeads)*dim:])
				}
			}
			r.close(fmt.Sprint("rotated heads of ", dim),
				r.downNumbers(d, buffer, len(qkv)), qkv, dim, tolerance)
			r.close(fmt.Sprint("pages of ", dim), r.downNumbers(stored.DType, pool, len(cache)),
				cache, dim, max(tolerance, stored.tolerance))
		}
	})
}

// rotate turns the pairs (i, i+len(freqs)) of a head.
func rotate(head, freqs []float64, position, scale float64) {
	for i, f := range freqs {
		sin, cos := math.Sincos(position * f)
		a, b := head[i], head[i+len(freqs)]
		head[i], head[i+len(freqs)] = (a*cos-b*sin)*scale, (b*cos+a*sin)*scale
	}
}
