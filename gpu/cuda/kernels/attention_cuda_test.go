//go:build cuda

package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// scene is a pool whose slots that no sequence owns hold NaNs, and sequences over shuffled pages.
type scene struct {
	*rig
	shape         gpu.KVShape
	heads         int
	window, sinks int
	cap           float64
	keys, values  [][]float64 // of each sequence: [position][head][dim]
	batch         []gpu.AttentionSequence
	pool          []float64
	rows          int
}

const attentionScale = 0.2

// part is a sequence: rows at the end of so many positions.
type part struct{ start, rows int }

// scene makes one, with gaps of a row between the sequences' query rows.
func (r *rig) scene(shape gpu.KVShape, heads int, parts ...part) *scene {
	s := &scene{rig: r, shape: shape, heads: heads}
	need := 0
	for _, p := range parts {
		need += (p.start + p.rows + shape.PageSize - 1) / shape.PageSize
	}
	s.shape.Layers, s.shape.Pages = 1, need+2
	free := r.random.Perm(s.shape.Pages)
	size := shape.KVHeads * shape.HeadDim
	s.pool = make([]float64, s.shape.Pages*2*shape.PageSize*size)
	for i := range s.pool {
		s.pool[i] = math.NaN()
	}
	for _, p := range parts {
		length := p.start + p.rows
		keys, values := r.numbers(shape.DType, length*size), r.numbers(shape.DType, length*size)
		var pages []int32
		for at := range length {
			if at%shape.PageSize == 0 {
				pages, free = append(pages, int32(free[0])), free[1:]
			}
			to := (int(pages[len(pages)-1])*2*shape.PageSize + at%shape.PageSize) * size
			copy(s.pool[to:], keys[at*size:][:size])
			copy(s.pool[to+shape.PageSize*size:], values[at*size:][:size])
		}
		s.keys, s.values = append(s.keys, keys), append(s.values, values)
		s.batch = append(s.batch, gpu.AttentionSequence{FirstRow: s.rows, Rows: p.rows,
			Start: p.start, Pages: pages})
		s.rows += p.rows + 1
	}
	return s
}

func (s *scene) width() int { return (s.heads + 2*s.shape.KVHeads) * s.shape.HeadDim }

func (s *scene) sees(position, key int) bool {
	return key <= position &&
		(s.window == 0 || key > position-s.window || key < s.sinks)
}

// want is the definition of attention in float64. Rows between the sequences are NaN.
func (s *scene) want(qkv []float64) []float64 {
	dim, group := s.shape.HeadDim, s.heads/s.shape.KVHeads
	out := make([]float64, s.rows*s.heads*dim)
	for i := range out {
		out[i] = math.NaN()
	}
	for n, q := range s.batch {
		for row := range q.Rows {
			for h := range s.heads {
				query := qkv[(q.FirstRow+row)*s.width()+h*dim:][:dim]
				to := out[((q.FirstRow+row)*s.heads+h)*dim:][:dim]
				s.attend(to, query, n, h/group, q.Start+row)
			}
		}
	}
	return out
}

func (s *scene) attend(to, query []float64, sequence, head, position int) {
	dim, size := s.shape.HeadDim, s.shape.KVHeads*s.shape.HeadDim
	scores := make([]float64, position+1)
	top := math.Inf(-1)
	for key := range scores {
		scores[key] = math.Inf(-1)
		if !s.sees(position, key) {
			continue
		}
		dot := 0.
		for d, k := range s.keys[sequence][key*size+head*dim:][:dim] {
			dot += query[d] * k
		}
		scores[key] = dot * attentionScale
		if s.cap > 0 {
			scores[key] = s.cap * math.Tanh(scores[key]/s.cap)
		}
		top = max(top, scores[key])
	}
	clear(to)
	sum := 0.
	for key, score := range scores {
		weight := math.Exp(score - top)
		sum += weight
		if weight > 0 {
			for d, v := range s.values[sequence][key*size+head*dim:][:dim] {
				to[d] += weight * v
			}
		}
	}
	for d := range to {
		to[d] /= sum
	}
}

// run gives the device's result for a batch, all rows, with NaNs where nothing was written. Scratch
// memory is as large as is asked for, and no more.
func (s *scene) run(d gpu.DType, qkv []float64, batch []gpu.AttentionSequence) []float64 {
	s.Helper()
	var plan kernels.Plan
	plan.Make(kernels.Batch{Shape: s.shape, Shared: s.info.SharedPerBlock, Window: s.window,
		Sinks: s.sinks, Sequences: batch})
	bytes := s.rows * s.heads * s.shape.HeadDim * d.Bytes()
	nan := make([]byte, bytes)
	for i := range nan {
		nan[i] = 0xff
	}
	dst := s.up(nan)
	s.rig.run(kernels.Attention{Dst: at(dst), QKV: at(s.upNumbers(d, qkv)),
		Layer: at(s.upNumbers(s.shape.DType, s.pool)), Words: at(s.upInts(plan.Words)),
		Scratch: at(s.alloc(4 * plan.ScratchFloats(s.heads, s.shape.HeadDim))), Plan: &plan,
		Shape: s.shape, Heads: s.heads, Scale: attentionScale, Cap: float32(s.cap),
		Window: s.window, Sinks: s.sinks}.Append(nil, d)...)
	return s.downNumbers(d, dst, s.rows*s.heads*s.shape.HeadDim)
}

// check compares the rows that belong to sequences, and sees that no other was written.
func (s *scene) check(what string, got, want []float64, tolerance float64) {
	s.Helper()
	width := s.heads * s.shape.HeadDim
	for n, q := range s.batch {
		from, to := q.FirstRow*width, (q.FirstRow+q.Rows)*width
		s.close(fmt.Sprintf("%s, sequence %d", what, n), got[from:to], want[from:to],
			s.shape.HeadDim, tolerance)
		for _, v := range got[to:][:width] {
			if !math.IsNaN(v) {
				s.Fatalf("%s: a row behind sequence %d was written", what, n)
			}
		}
	}
}

// stored are the types of pages for a type of activations, and the error to expect.
func stored(i int, tolerance float64) (gpu.DType, float64) {
	kv := types[i%len(types)]
	return kv.DType, max(tolerance, kv.tolerance)
}

// TestAttentionOfAnyShape: heads and pages of odd sizes, pages of each type.
func TestAttentionOfAnyShape(t *testing.T) {
	each(t, func(r *rig, d gpu.DType, tolerance float64) {
		for i, dim := range []int{2, 48, 90, 96} {
			kv, tolerance := stored(i, max(tolerance, 1e-5))
			kvHeads := r.between(1, 2)
			s := r.scene(gpu.KVShape{PageSize: r.between(1, 24), KVHeads: kvHeads, HeadDim: dim,
				DType: kv}, kvHeads*r.between(1, 3), part{0, 5}, part{30, 9}, part{70, 1})
			s.mask(i)
			qkv := r.numbers(d, s.rows*s.width())
			s.check(s.String(), s.run(d, qkv, s.batch), s.want(qkv), tolerance)
		}
	})
}

// mask picks one of the ways in which keys are hidden and scores bounded.
func (s *scene) mask(i int) {
	if i%2 == 1 {
		s.window = s.between(1, 90)
	}
	if i%4 == 3 {
		s.sinks = s.between(1, 70)
	}
	if i%3 == 2 {
		s.cap = 3
	}
}

func (s *scene) String() string {
	return fmt.Sprintf("%+v, %d heads, window %d, sinks %d, cap %g", s.shape, s.heads, s.window,
		s.sinks, s.cap)
}

// TestAttentionOnTensorCores: ragged batches of prompts, chunks behind a history, and decode rows.
func TestAttentionOnTensorCores(t *testing.T) {
	for i, dim := range []int{64, 64, 64, 64, 128, 128, 128, 256} {
		kv := types[1+i%2]
		activations := types[(i/2+2)%3]
		t.Run(fmt.Sprintf("%d %v %v %d", dim, kv.DType, activations.DType, i), func(t *testing.T) {
			r := open(t)
			kvHeads := r.between(1, 2)
			s := r.scene(gpu.KVShape{PageSize: []int{16, 5, 64, 32}[i%4], KVHeads: kvHeads,
				HeadDim: dim, DType: kv.DType}, kvHeads*r.between(1, 3),
				part{0, r.between(2, 80)}, part{r.between(1, 100), r.between(65, 70)},
				part{r.between(0, 200), 1}, part{0, 1})
			s.mask(i)
			qkv := r.numbers(activations.DType, s.rows*s.width())
			// The queries are rounded to the type of the keys; the scores carry that.
			tolerance := max(kv.tolerance, activations.tolerance)
			s.check(s.String(), s.run(activations.DType, qkv, s.batch),
				s.want(round(kv.DType, qkv)), tolerance)
		})
	}
}

func round(d gpu.DType, x []float64) []float64 { return decode(d, encode(d, x)) }

// TestManySplits: rows that see several splits, whole and in decode; heads of more than 16 to a key
// head take more than one block.
func TestManySplits(t *testing.T) {
	for _, masked := range []bool{false, true} {
		r := open(t)
		s := r.scene(gpu.KVShape{PageSize: 64, KVHeads: 1, HeadDim: 64, DType: gpu.BF16}, 17,
			part{1200, 1}, part{510, 1}, part{511, 1}, part{512, 1})
		if masked {
			s.window, s.sinks = 100, 3
		}
		qkv := r.numbers(gpu.BF16, s.rows*s.width())
		s.check(s.String(), s.run(gpu.BF16, qkv, s.batch), s.want(qkv), 5e-3)
		s = r.scene(s.shape, 1, part{1000, 70})
		qkv = r.numbers(gpu.BF16, s.rows*s.width())
		s.check(s.String(), s.run(gpu.BF16, qkv, s.batch), s.want(qkv), 5e-3)
	}
}

// TestChunksChangeNoBit: one prompt whole, in chunks, and row by row through the decode kernels.
func TestChunksChangeNoBit(t *testing.T) {
	for i, shape := range []gpu.KVShape{
		{PageSize: 16, KVHeads: 1, HeadDim: 64, DType: gpu.BF16},
		{PageSize: 10, KVHeads: 1, HeadDim: 64, DType: gpu.F16},
		{PageSize: 64, KVHeads: 1, HeadDim: 128, DType: gpu.BF16},
		{PageSize: 7, KVHeads: 1, HeadDim: 40, DType: gpu.F32},
		{PageSize: 64, KVHeads: 1, HeadDim: 256, DType: gpu.BF16},
	} {
		r := open(t)
		rows := []int{1050, 150, 150, 70, 70}[i]
		s := r.scene(shape, 2, part{0, rows})
		s.mask(i)
		qkv := r.numbers(gpu.F32, s.rows*s.width())
		q := s.batch[0]
		if i == 0 {
			// The last rows are behind two splits; the others are there to be seen.
			q.FirstRow, q.Start, q.Rows = rows-26, rows-26, 26
		}
		whole := s.run(gpu.F32, qkv, []gpu.AttentionSequence{q})
		var pieces []gpu.AttentionSequence
		for from := 0; from < q.Rows; {
			n := min(q.Rows-from, []int{1, r.between(2, 40)}[r.random.IntN(2)])
			pieces = append(pieces, gpu.AttentionSequence{FirstRow: q.FirstRow + from, Rows: n,
				Start: q.Start + from, Pages: q.Pages})
			from += n
		}
		got := s.run(gpu.F32, qkv, pieces)
		width := s.heads * shape.HeadDim
		from, to := q.FirstRow*width, (q.FirstRow+q.Rows)*width
		if !slices.Equal(got[from:to], whole[from:to]) {
			for i := from; i < to; i++ {
				if got[i] != whole[i] {
					r.Fatalf("%v: in pieces %v, row %d, number %d is %g, whole %g", s, pieces,
						i/width, i%width, got[i], whole[i])
				}
			}
		}
	}
}

// TestSharedMemoryChangesNoBit: where blocks may have less shared memory, as on older and smaller
// GPUs, the tensor core kernels give the same bits, for prompts with one split and more and for
// decode. Below what any such GPU has, heads of 256 go to the kernel of any shape, which sums in an
// order of its own.
func TestSharedMemoryChangesNoBit(t *testing.T) {
	for dim, limits := range map[int][]int{64: {48, 30}, 128: {163, 99, 48}, 256: {163, 99, 48}} {
		t.Run(fmt.Sprint(dim), func(t *testing.T) {
			r := open(t)
			s := r.scene(gpu.KVShape{PageSize: 64, KVHeads: 1, HeadDim: dim, DType: gpu.BF16}, 2,
				part{509, 67}, part{3, 70}, part{700, 1})
			if dim == 128 {
				s.window, s.sinks = 530, 5
			}
			qkv := r.numbers(gpu.BF16, s.rows*s.width())
			want := s.run(gpu.BF16, qkv, s.batch)
			s.check(s.String(), want, s.want(qkv), 5e-3)
			for _, kib := range limits {
				r.limit(kib << 10)
				got := s.run(gpu.BF16, qkv, s.batch)
				if kib == 48 && dim == 256 {
					s.check(s.String(), got, s.want(qkv), 5e-3)
				} else if !slices.Equal(encoded(got), encoded(want)) {
					t.Errorf("%v: %d KiB of shared memory change the result", s, kib)
				}
			}
		})
	}
}

// encoded are the bits of bfloat16 numbers, NaNs included.
func encoded(x []float64) []byte { return encode(gpu.BF16, x) }

// TestPagesThatAreGone: pages that the window hides from every row may be missing.
func TestPagesThatAreGone(t *testing.T) {
	for _, dim := range []int{64, 50} {
		r := open(t)
		s := r.scene(gpu.KVShape{PageSize: 8, KVHeads: 1, HeadDim: dim, DType: gpu.F16}, 2,
			part{150, 40}, part{200, 1})
		s.window, s.sinks = 33, 9
		qkv := r.numbers(gpu.F16, s.rows*s.width())
		want := s.want(qkv)
		for n, q := range s.batch {
			for page := range q.Pages {
				if page*8 >= s.sinks && (page+1)*8 <= q.Start-s.window+1 {
					s.batch[n].Pages[page] = gpu.NoPage
				}
			}
		}
		s.check(s.String(), s.run(gpu.F16, qkv, s.batch), want, 1e-3)
	}
}
