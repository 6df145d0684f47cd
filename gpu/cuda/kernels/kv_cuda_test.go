//go:build cuda

package kernels_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// randomBytes are n of them.
func (r *rig) randomBytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.random.Uint32())
	}
	return data
}

// TestPages: packed ranges have the canonical layout, unpacking them puts every byte back and
// touches no other, and copies of pages copy the slots asked for in all layers.
func TestPages(t *testing.T) {
	for _, shape := range []gpu.KVShape{
		{Layers: 2, Pages: 5, PageSize: 16, KVHeads: 2, HeadDim: 64, DType: gpu.BF16},
		{Layers: 3, Pages: 4, PageSize: 5, KVHeads: 1, HeadDim: 6, DType: gpu.F16},
		{Layers: 1, Pages: 3, PageSize: 64, KVHeads: 8, HeadDim: 128, DType: gpu.BF16},
		{Layers: 2, Pages: 4, PageSize: 1, KVHeads: 3, HeadDim: 2, DType: gpu.F32},
	} {
		name := fmt.Sprintf("%d slots of %d", shape.PageSize, shape.TokenBytes())
		t.Run(name, func(t *testing.T) {
			r := open(t)
			r.packs(shape)
			r.copies(shape)
		})
	}
}

func (r *rig) packs(shape gpu.KVShape) {
	layer := shape.Layers - 1
	pool := r.randomBytes(int(kernels.PoolBytes(shape)))
	side, base := shape.TokenBytes()/2, layer*int(kernels.LayerBytes(shape))
	var words []int32
	var want []byte
	slot := 0
	for _, page := range r.random.Perm(shape.Pages)[:3] {
		c := gpu.KVRange{Page: page, First: r.between(0, shape.PageSize-1)}
		c.Count = r.between(0, shape.PageSize-c.First)
		words = kernels.AppendRange(words, c, slot)
		slot += c.Count
		for s := range 2 {
			from := base + ((page*2+s)*shape.PageSize+c.First)*side
			want = append(want, pool[from:][:c.Count*side]...)
		}
	}
	packed, ranges := r.alloc(len(want)), r.upInts(words)
	a := kernels.PackPages{Packed: at(packed), Layer: at(r.up(pool)) + uint64(base),
		Ranges: at(ranges), Count: 3, Shape: shape}
	r.run(a.Pack())
	if !bytes.Equal(r.down(packed, len(want)), want) {
		r.Fatal("packed ranges are not what the pages hold")
	}
	other := r.up(make([]byte, len(pool)))
	a.Layer = at(other) + uint64(base)
	r.run(a.Unpack())
	expected := make([]byte, len(pool))
	for i := range 3 {
		w := words[kernels.RangeWords*i:]
		for s := range 2 {
			from := base + ((int(w[0])*2+s)*shape.PageSize+int(w[1]))*side
			copy(expected[from:][:int(w[2])*side], pool[from:])
		}
	}
	if !bytes.Equal(r.down(other, len(pool)), expected) {
		r.Fatal("unpacked pages differ")
	}
}

func (r *rig) copies(shape gpu.KVShape) {
	pool := r.randomBytes(int(kernels.PoolBytes(shape)))
	from := r.up(pool)
	list := []gpu.KVCopy{{From: 0, To: 1, Tokens: shape.PageSize},
		{From: 0, To: 2, Tokens: r.between(0, shape.PageSize)}}
	r.run(kernels.CopyPages{Pool: at(from), Copies: at(r.upInts(kernels.AppendCopies(nil, list))),
		Count: len(list), Shape: shape}.Launch())
	half := shape.PageSize * shape.TokenBytes() / 2
	for _, c := range list {
		for layer := range shape.Layers {
			for s := range 2 {
				of := func(page int32) []byte {
					return pool[((layer*shape.Pages+int(page))*2+s)*half:]
				}
				copy(of(c.To)[:c.Tokens*shape.TokenBytes()/2], of(c.From))
			}
		}
	}
	if !bytes.Equal(r.down(from, len(pool)), pool) {
		r.Fatal("pages after copies differ")
	}
}

// ranked are the indices of numbers from the largest on, NaNs last, lower indices first among
// equals.
func ranked(x []float64) []int32 {
	order := make([]int32, len(x))
	for i := range order {
		order[i] = int32(i)
	}
	value := func(i int32) float64 {
		if math.IsNaN(x[i]) {
			return math.Inf(-1)
		}
		return x[i]
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(value(b), value(a)) })
	return order
}

// TestSampling: argmax and the candidates of rows with many equal numbers, and of one with NaNs.
func TestSampling(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, _ float64) {
		for _, width := range []int{1, 5, 300, 5000} {
			const rows, sound = 4, 3
			x := r.numbers(d, rows*width)
			for i := range x {
				if i%3 == 0 {
					x[i] = math.Round(x[i])
				}
				if i%50 == 49 {
					x[i] = math.Inf(-1)
				}
			}
			for i := sound * width; i < len(x); i += 2 {
				x[i] = math.NaN()
			}
			k := min(kernels.MaxTopK, width, []int{1, 40, 256}[r.random.IntN(3)])
			temperatures := []float64{0.7, 1, 1.3, 1}
			inverse := make([]float64, rows)
			for i, t := range temperatures {
				inverse[i] = 1 / t
			}
			best, indices := r.alloc(rows*4), r.alloc(rows*k*4)
			values, sums, logits := r.alloc(rows*k*4), r.alloc(rows*4), at(r.upNumbers(d, x))
			r.run(kernels.Argmax{Dst: at(best), X: logits, Rows: rows, Width: width}.Launch(d),
				kernels.TopK{Indices: at(indices), Values: at(values), Sums: at(sums), X: logits,
					Inverse: at(r.upNumbers(gpu.F32, inverse)), Rows: rows, Width: width,
					K: k}.Launch(d))
			first, top := ints(r.down(best, rows*4)), ints(r.down(indices, rows*k*4))
			total := r.downNumbers(gpu.F32, sums, rows)
			got := r.downNumbers(gpu.F32, values, rows*k)
			if first[sound] != -1 || !math.IsNaN(total[sound]) {
				r.Fatalf("%d wide: a NaN gives %d and %g", width, first[sound], total[sound])
			}
			for row := range sound {
				line := x[row*width:][:width]
				want := ranked(line)
				if first[row] != want[0] {
					r.Fatalf("%d wide: argmax %d, want %d", width, first[row], want[0])
				}
				if !slices.Equal(top[row*k:][:k], want[:k]) {
					r.Fatalf("%d wide: top %d are %v, want %v", width, k, top[row*k:][:k], want[:k])
				}
				var sum float64
				for i, v := range line {
					sum += math.Exp((v - line[want[0]]) / temperatures[row])
					if i < k && got[row*k+i] != line[want[i]] {
						r.Fatalf("%d wide: value %d is %g", width, i, got[row*k+i])
					}
				}
				if !(math.Abs(total[row]/sum-1) < 2e-5) {
					r.Fatalf("%d wide: sum %g, want %g", width, total[row], sum)
				}
			}
		}
	})
}

func ints(data []byte) []int32 {
	list := make([]int32, len(data)/4)
	for i := range list {
		list[i] = int32(data[4*i]) | int32(data[4*i+1])<<8 | int32(data[4*i+2])<<16 |
			int32(data[4*i+3])<<24
	}
	return list
}
