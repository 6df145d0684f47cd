//go:build cuda

package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
)

// sizes are the shape that is measured: a model's, prompts, and a decode of some sequences.
type sizes struct {
	hidden, mlp, heads, kvHeads, dim int
	layers, vocabulary, page         int
	prompts                          []int
	batches                          []int // decoding sequences
	depth                            int   // tokens behind each
}

// measured is Llama-3.1-8B. ENGINE_BENCH_SMALL=1 takes the place of it by what an emulated GPU
// computes in moments: it shows that everything runs, and no rate.
func measured() sizes {
	if os.Getenv("ENGINE_BENCH_SMALL") == "1" {
		return sizes{hidden: 128, mlp: 192, heads: 2, kvHeads: 1, dim: 64, layers: 2,
			vocabulary: 300, page: 16, prompts: []int{20, 70}, batches: []int{1, 3}, depth: 40}
	}
	return sizes{hidden: 4096, mlp: 14336, heads: 32, kvHeads: 8, dim: 128, layers: 32,
		vocabulary: 128256, page: 64, prompts: []int{512, 2048, 8192}, batches: []int{1, 16, 64},
		depth: 4096}
}

func (s sizes) width() int { return (s.heads + 2*s.kvHeads) * s.dim }

// rig is one layer of that shape and its head, with random weights: what the layer takes, times the
// layers, is a pass. Weights do not stay in any cache that long.
type rig struct {
	*testing.B
	sizes
	d                            *cuda.Device
	qkv, out, gateUp, down, head gpu.Matrix
	hidden, x, rows, mid         gpu.Buffer
	wide, weight, logits         gpu.Buffer
	kv                           gpu.KV
	places                       []int32
	rope                         gpu.RopeArgs
	attention                    gpu.AttentionArgs
	tokens                       int
}

// normal is a megabyte of bf16 numbers that weights repeat: a GPU's clock depends on what it
// multiplies, so it must not be zeros.
func normal(scale float64) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 1<<20)
	for i := 0; i < len(data); i += 2 {
		binary.LittleEndian.PutUint16(data[i:], cpu.Bfloat(float32(scale*r.NormFloat64())))
	}
	return data
}

func newRig(b *testing.B) *rig {
	r := &rig{B: b, sizes: measured(), d: real(b, cuda.Options{Type: gpu.BF16,
		StagingBytes: 256 << 20})}
	b.Cleanup(func() { r.must(r.d.Close()) })
	pattern := normal(0.02)
	matrix := func(rows, cols int) gpu.Matrix {
		data := make([]byte, 2*rows*cols)
		for at := 0; at < len(data); at += copy(data[at:], pattern) {
		}
		m, err := r.d.Pack(gpu.Tensor{Rows: rows, Cols: cols, DType: gpu.BF16, Data: data})
		r.must(err)
		return m
	}
	most := max(r.prompts[len(r.prompts)-1], r.batches[len(r.batches)-1])
	buffer := func(width int) gpu.Buffer {
		buf, err := r.d.Alloc(most * width)
		r.must(err)
		return buf
	}
	r.qkv, r.out = matrix(r.width(), r.model()), matrix(r.model(), r.heads*r.dim)
	r.gateUp, r.down = matrix(2*r.mlp, r.model()), matrix(r.model(), r.mlp)
	r.head = matrix(r.vocabulary, r.model())
	r.hidden, r.x, r.rows = buffer(r.model()), buffer(r.model()), buffer(r.width())
	r.wide, r.mid, r.weight = buffer(2*r.mlp), buffer(r.mlp), buffer(r.model())
	var err error
	r.logits, err = r.d.Alloc(r.batches[len(r.batches)-1] * r.vocabulary)
	r.must(err)
	r.fill(r.hidden, r.x, r.rows, r.mid, r.logits)
	ones := make([]float32, r.model())
	for i := range ones {
		ones[i] = 1
	}
	r.must(r.d.Write(r.weight, ones))
	deep := r.batches[len(r.batches)-1] * (r.depth/r.page + 1)
	r.kv, err = r.d.AllocKV(gpu.KVShape{Layers: 2, Pages: max(most/r.page+1, deep),
		PageSize: r.page, KVHeads: r.kvHeads, HeadDim: r.dim, DType: gpu.BF16})
	r.must(err)
	r.rope = gpu.RopeArgs{QKV: r.rows, KV: r.kv, Heads: r.heads, KVHeads: r.kvHeads,
		HeadDim: r.dim, Rope: &gpu.Rope{Scale: 1}}
	for i := range r.dim / 2 {
		r.rope.Rope.Freqs = append(r.rope.Rope.Freqs, math.Pow(5e5, -2*float64(i)/float64(r.dim)))
	}
	r.attention = gpu.AttentionArgs{Dst: r.x, QKV: r.rows, KV: r.kv, Heads: r.heads,
		KVHeads: r.kvHeads, HeadDim: r.dim, Scale: float32(1 / math.Sqrt(float64(r.dim)))}
	return r
}

// model is the width of the residual stream.
func (r *rig) model() int { return r.sizes.hidden }

// fill gives rows numbers of the size that norms make.
func (r *rig) fill(buffers ...gpu.Buffer) {
	random := rand.New(rand.NewPCG(3, 4))
	values := make([]float32, 1<<16)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	for _, b := range buffers {
		all := make([]float32, b.Elements())
		for at := 0; at < len(all); at += copy(all[at:], values) {
		}
		r.must(r.d.Write(b, all))
	}
	r.must(r.d.Sync())
}

func (r *rig) must(err error) {
	if err != nil {
		r.Helper()
		r.Fatal(err)
	}
}

// prompt makes what follows the pass of one prompt of so many tokens.
func (r *rig) prompt(tokens int) {
	r.tokens = tokens
	r.rope.Positions, r.rope.Slots = nil, nil
	var pages []int32
	for t := range tokens {
		r.rope.Positions = append(r.rope.Positions, int32(t))
		r.rope.Slots = append(r.rope.Slots, int32(t))
		if t%r.page == 0 {
			pages = append(pages, int32(t/r.page))
		}
	}
	r.places = pages
	r.attention.Sequences = []gpu.AttentionSequence{{Rows: tokens, Pages: pages}}
}

// decode makes what follows a step of so many sequences, each with pages of its own.
func (r *rig) decode(sequences int) {
	r.tokens = sequences
	r.rope.Positions, r.rope.Slots, r.attention.Sequences = nil, nil, nil
	for s := range sequences {
		var pages []int32
		for p := range r.depth/r.page + 1 {
			pages = append(pages, int32(s*(r.depth/r.page+1)+p))
		}
		last := pages[len(pages)-1]*int32(r.page) + int32(r.depth%r.page)
		r.rope.Positions = append(r.rope.Positions, int32(r.depth))
		r.rope.Slots = append(r.rope.Slots, last)
		r.attention.Sequences = append(r.attention.Sequences, gpu.AttentionSequence{FirstRow: s,
			Rows: 1, Start: r.depth, Pages: pages})
	}
}

func (r *rig) multiply(dst, x gpu.Buffer, w gpu.Matrix, add bool) {
	r.must(r.d.MatMul(gpu.MatMulArgs{Dst: dst, X: x, W: w, Rows: r.tokens, Accumulate: add}))
}

func (r *rig) norm() {
	r.must(r.d.Norm(gpu.NormArgs{Dst: r.x, X: r.hidden, Weight: r.weight, Rows: r.tokens,
		Dim: r.model(), Eps: 1e-5}))
}

func (r *rig) glu() {
	r.must(r.d.GLU(gpu.GLUArgs{Dst: r.mid, GateUp: r.wide, Rows: r.tokens, Width: r.mlp}))
}

// layer is one layer; send is called behind the append.
func (r *rig) layer(send func()) {
	r.norm()
	r.multiply(r.rows, r.x, r.qkv, false)
	r.must(r.d.RopeAppend(r.rope))
	send()
	r.must(r.d.Attention(r.attention))
	r.multiply(r.hidden, r.x, r.out, true)
	r.norm()
	r.multiply(r.wide, r.x, r.gateUp, false)
	r.glu()
	r.multiply(r.hidden, r.mid, r.down, true)
}

// pass is all layers.
func (r *rig) pass(send func()) {
	for range r.layers {
		r.layer(send)
	}
}

// ranges are all slots of the prompt in the layer.
func (r *rig) ranges() (all []gpu.KVRange) {
	for i, page := range r.places {
		all = append(all, gpu.KVRange{Page: int(page), Count: min(r.page, r.tokens-i*r.page)})
	}
	return all
}

// measure reports a rate of the work that f gives to the device, several times before each wait:
// short kernels would else measure the wait. A wait of its own in f ends that.
func (r *rig) measure(name, unit string, perCall float64, calls int, f func()) {
	r.Run(name, func(b *testing.B) {
		work := func() {
			for range calls {
				f()
			}
			r.must(r.d.Sync())
		}
		for range 3 { // The first runs as it is, the second makes a graph.
			work()
		}
		for b.Loop() {
			work()
		}
		seconds := b.Elapsed().Seconds() / float64(b.N*calls)
		b.ReportMetric(perCall/seconds, unit)
		b.ReportMetric(seconds*1e6, "µs/call")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkRealProducts are the matrix products of a layer, of prompts and of decoding, and the
// head.
func BenchmarkRealProducts(b *testing.B) {
	r := newRig(b)
	for _, tokens := range append(append([]int(nil), r.batches...), r.prompts...) {
		r.tokens = tokens
		for _, p := range []struct {
			name   string
			dst, x gpu.Buffer
			w      gpu.Matrix
		}{
			{"qkv", r.rows, r.x, r.qkv}, {"out", r.hidden, r.x, r.out},
			{"gate_up", r.wide, r.x, r.gateUp}, {"down", r.hidden, r.mid, r.down},
			{"head", r.logits, r.x, r.head},
		} {
			if tokens*p.w.Rows() > p.dst.Elements() {
				continue
			}
			r.measure(fmt.Sprintf("%s_%dx%d/T=%d", p.name, p.w.Rows(), p.w.Cols(), tokens),
				"TFLOP/s", 2*float64(tokens)*float64(p.w.Rows())*float64(p.w.Cols())/1e12, 10,
				func() { r.multiply(p.dst, p.x, p.w, false) })
		}
	}
}

// BenchmarkRealKernels are this package's own kernels, attention of prompts and of decode first.
func BenchmarkRealKernels(b *testing.B) {
	r := newRig(b)
	attend := func() { r.must(r.d.Attention(r.attention)) }
	for _, tokens := range r.prompts {
		r.prompt(tokens)
		rows := float64(tokens)
		name := func(what string) string { return fmt.Sprintf("%s/T=%d", what, tokens) }
		r.measure(name("attention"), "TFLOP/s",
			2*float64(r.heads)*float64(r.dim)*rows*rows/1e12, 4, attend)
		r.measure(name("norm"), "GB/s", rows*float64(r.model())*4/1e9, 10, r.norm)
		r.measure(name("rope_append"), "GB/s",
			rows*float64(2*r.width()+(r.heads+2*r.kvHeads)*r.dim)*2/1e9, 10,
			func() { r.must(r.d.RopeAppend(r.rope)) })
		r.measure(name("glu"), "GB/s", rows*float64(r.mlp)*6/1e9, 10, r.glu)
	}
	for _, sequences := range r.batches {
		r.decode(sequences)
		r.measure(fmt.Sprintf("attention_decode_at_%d/B=%d", r.depth, sequences), "GB/s",
			float64(sequences)*float64(r.depth+1)*float64(4*r.kvHeads*r.dim)/1e9, 10, attend)
		best := make([]int32, sequences)
		r.measure(fmt.Sprintf("argmax_to_host/B=%d", sequences), "rows/s", float64(sequences), 1,
			func() { r.must(r.d.Argmax(best, r.logits, r.vocabulary)) })
		k := gpu.TopKArgs{X: r.logits, Width: r.vocabulary, K: min(gpu.MaxTopK, r.vocabulary),
			Sums: make([]float32, sequences), Temperatures: make([]float32, sequences)}
		k.Places, k.Values = make([]int32, sequences*k.K), make([]float32, sequences*k.K)
		for i := range k.Temperatures {
			k.Temperatures[i] = 1
		}
		r.measure(fmt.Sprintf("top_%d_to_host/B=%d", k.K, sequences), "rows/s",
			float64(sequences), 1, func() { r.must(r.d.TopK(k)) })
	}
}

// BenchmarkRealPrefill is a pass of one prompt, and the same with every layer's keys and values on
// their way to the host: what the second takes longer is what the copies do not hide.
func BenchmarkRealPrefill(b *testing.B) {
	r := newRig(b)
	for _, tokens := range r.prompts {
		r.prompt(tokens)
		ranges := r.ranges()
		send := func() {
			r.must(r.d.Flush())
			r.must(r.d.StageKV(r.kv, 0, ranges))
		}
		r.measure(fmt.Sprintf("alone/T=%d", tokens), "tok/s", float64(tokens), 1,
			func() { r.pass(func() {}) })
		r.measure(fmt.Sprintf("sending/T=%d", tokens), "tok/s", float64(tokens), 1,
			func() { r.pass(send) })
	}
}

// BenchmarkRealDecode is a step of decoding sequences with its head and the choice of the likeliest
// tokens, replayed as a graph.
func BenchmarkRealDecode(b *testing.B) {
	r := newRig(b)
	for _, sequences := range r.batches {
		r.decode(sequences)
		best := make([]int32, sequences)
		r.measure(fmt.Sprintf("step_at_%d/B=%d", r.depth, sequences), "tok/s", float64(sequences),
			1, func() {
				r.pass(func() {})
				r.norm()
				r.multiply(r.logits, r.x, r.head, false)
				r.must(r.d.Argmax(best, r.logits, r.vocabulary))
			})
	}
}
