//go:build cuda

package cuda_test

import (
	"fmt"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
)

// The shape of Llama-3.1-8B.
const (
	realHidden, realMLP    = 4096, 14336
	realHeads, realKVHeads = 32, 8
	realDim, realLayers    = 128, 32
	realPage               = 64
)

// rig is one layer of that shape with weights of no meaning: what it takes, times the layers, is a
// prefill.
type rig struct {
	*testing.B
	d                      *cuda.Device
	qkv, out, gateUp, down gpu.Matrix
	hidden, x, rows, mlp   gpu.Buffer
	wide, weight           gpu.Buffer
	kv                     gpu.KV
	tokens                 int
	pages                  []int32
	rope                   gpu.RopeArgs
}

func newRig(b *testing.B, tokens int) *rig {
	r := &rig{B: b, d: real(b, cuda.Options{Type: gpu.BF16, StagingBytes: 256 << 20}),
		tokens: tokens}
	matrix := func(rows, cols int) gpu.Matrix {
		data := make([]byte, 2*rows*cols)
		for i := range rows * cols {
			data[2*i], data[2*i+1] = byte(i*2654435761>>13), 0x3c|byte(i&1)<<7 // about ±0.01
		}
		m, err := r.d.Pack(gpu.Tensor{Rows: rows, Cols: cols, DType: gpu.BF16, Data: data})
		r.must(err)
		return m
	}
	buffer := func(width int) gpu.Buffer {
		buf, err := r.d.Alloc(tokens * width)
		r.must(err)
		return buf
	}
	width := (realHeads + 2*realKVHeads) * realDim
	r.qkv, r.out = matrix(width, realHidden), matrix(realHidden, realHidden)
	r.gateUp, r.down = matrix(2*realMLP, realHidden), matrix(realHidden, realMLP)
	r.hidden, r.x, r.rows = buffer(realHidden), buffer(realHidden), buffer(width)
	r.wide, r.mlp = buffer(2*realMLP), buffer(realMLP)
	r.weight = buffer(realHidden)
	shape := gpu.KVShape{Layers: 2, Pages: tokens/realPage + 1, PageSize: realPage,
		KVHeads: realKVHeads, HeadDim: realDim, DType: gpu.BF16}
	var err error
	r.kv, err = r.d.AllocKV(shape)
	r.must(err)
	r.rope = gpu.RopeArgs{QKV: r.rows, KV: r.kv, Heads: realHeads, KVHeads: realKVHeads,
		HeadDim: realDim, Rope: &gpu.Rope{Freqs: make([]float64, realDim/2), Scale: 1}}
	for t := range tokens {
		r.rope.Positions = append(r.rope.Positions, int32(t))
		r.rope.Slots = append(r.rope.Slots, int32(t))
	}
	for p := range (tokens + realPage - 1) / realPage {
		r.pages = append(r.pages, int32(p))
	}
	b.Cleanup(func() { r.must(r.d.Close()) })
	return r
}

func (r *rig) must(err error) {
	if err != nil {
		r.Helper()
		r.Fatal(err)
	}
}

func (r *rig) multiply(dst, x gpu.Buffer, w gpu.Matrix, add bool) {
	r.must(r.d.MatMul(gpu.MatMulArgs{Dst: dst, X: x, W: w, Rows: r.tokens, Accumulate: add}))
}

func (r *rig) norm() {
	r.must(r.d.Norm(gpu.NormArgs{Dst: r.x, X: r.hidden, Weight: r.weight, Rows: r.tokens,
		Dim: realHidden, Eps: 1e-5}))
}

func (r *rig) attend() {
	r.must(r.d.Attention(gpu.AttentionArgs{Dst: r.x, QKV: r.rows, KV: r.kv, Heads: realHeads,
		KVHeads: realKVHeads, HeadDim: realDim, Scale: .088,
		Sequences: []gpu.AttentionSequence{{Rows: r.tokens, Pages: r.pages}}}))
}

// layer is one layer of a prefill; send is called behind the append.
func (r *rig) layer(send func()) {
	r.norm()
	r.multiply(r.rows, r.x, r.qkv, false)
	r.must(r.d.RopeAppend(r.rope))
	send()
	r.attend()
	r.multiply(r.hidden, r.x, r.out, true)
	r.norm()
	r.multiply(r.wide, r.x, r.gateUp, false)
	r.must(r.d.GLU(gpu.GLUArgs{Dst: r.mlp, GateUp: r.wide, Rows: r.tokens, Width: realMLP}))
	r.multiply(r.hidden, r.mlp, r.down, true)
}

// ranges are all slots of the layer.
func (r *rig) ranges() (all []gpu.KVRange) {
	for i, page := range r.pages {
		all = append(all, gpu.KVRange{Page: int(page), Count: min(realPage, r.tokens-i*realPage)})
	}
	return all
}

// measure reports a rate of work that f gives to the device once.
func (r *rig) measure(name, unit string, perCall float64, f func()) {
	r.Run(name, func(b *testing.B) {
		f()
		r.must(r.d.Sync())
		for b.Loop() {
			f()
			r.must(r.d.Sync())
		}
		b.ReportMetric(perCall*float64(b.N)/b.Elapsed().Seconds(), unit)
	})
}

// BenchmarkReal is what the one-shot script measures: products, kernels, prefill with and without
// layers going out, a decode step, the way to the host.
func BenchmarkReal(b *testing.B) {
	for _, tokens := range []int{1, 512, 2048, 8192} {
		r := newRig(b, tokens)
		name := func(what string) string { return fmt.Sprintf("%s/T=%d", what, tokens) }
		rows := float64(tokens)
		for _, p := range []struct {
			name   string
			dst, x gpu.Buffer
			w      gpu.Matrix
		}{
			{"qkv", r.rows, r.x, r.qkv}, {"out", r.hidden, r.x, r.out},
			{"gate_up", r.wide, r.x, r.gateUp}, {"down", r.hidden, r.mlp, r.down},
		} {
			work := 2 * rows * float64(p.w.Rows()) * float64(p.w.Cols()) / 1e12
			r.measure(name("product/"+p.name), "TFLOP/s", work,
				func() { r.multiply(p.dst, p.x, p.w, false) })
		}
		r.measure(name("norm"), "GB/s", rows*realHidden*4/1e9, r.norm)
		r.measure(name("attention"), "TFLOP/s", 2*realHeads*realDim*rows*rows/1e12, r.attend)
		whole := func(send func()) func() {
			return func() {
				for range realLayers {
					r.layer(send)
				}
			}
		}
		r.measure(name("prefill"), "tok/s", rows, whole(func() {}))
		ranges := r.ranges()
		r.measure(name("prefill_sending"), "tok/s", rows, whole(func() {
			r.must(r.d.Flush())
			r.must(r.d.StageKV(r.kv, 0, ranges))
		}))
		bytes := rows * realKVHeads * realDim * 4
		page := make([]byte, realPage*realKVHeads*realDim*4)
		r.measure(name("to_host"), "GB/s", bytes/1e9, func() {
			r.must(r.d.StageKV(r.kv, 0, ranges))
			for _, one := range ranges {
				r.must(r.d.PackKV(r.kv, one, page[:one.Count*realKVHeads*realDim*4]))
			}
		})
	}
}
