package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// The shape of SmolLM2-135M.
const (
	benchDim, benchLayers, benchHeads, benchKVHeads, benchHead = 576, 30, 9, 3, 64
	benchInner, benchVocabulary, benchPage                     = 1536, 49152, 16

	benchWidth = (benchHeads + 2*benchKVHeads) * benchHead
)

// BenchmarkModel times whole forward passes of a model of 135 million parameters with random
// weights: a prompt of 512 tokens, and tokens one after another behind it.
func BenchmarkModel(b *testing.B) {
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVX2} {
		for _, dtype := range []gpu.DType{gpu.F32, gpu.F16, gpu.BF16, gpu.Q8_0, gpu.Q4_0, gpu.Q4_1,
			gpu.Q5_0, gpu.Q5_1} {
			m := &benchModel{b: b, d: open(b, cpu.Options{ISA: isa, Threads: 2})}
			b.Run(fmt.Sprintf("%s/%v", isa, dtype), func(b *testing.B) {
				m.b = b
				if m.layers == nil {
					m.build(dtype)
				}
				b.Run("pp512", func(b *testing.B) { m.run(b, 512, 0) })
				for _, rows := range []int{1, 2, 4, 8, 16, 32} {
					b.Run(fmt.Sprintf("tg/batch=%d", rows),
						func(b *testing.B) { m.run(b, 1, rows) })
				}
			})
			m.d.Close()
		}
	}
}

type benchModel struct {
	b                           testing.TB
	d                           gpu.Device
	random                      *rand.Rand
	kv                          gpu.KV
	embedding                   gpu.Matrix
	layers                      []benchLayer
	norm                        gpu.Buffer
	hidden, x, qkv, gateUp, mlp gpu.Buffer
	logits                      gpu.Buffer
	rope                        gpu.Rope
}

type benchLayer struct{ qkv, out, gateUp, down gpu.Matrix }

func (m *benchModel) must(err error) {
	m.b.Helper()
	if err != nil {
		m.b.Fatal(err)
	}
}

func (m *benchModel) buffer(n int) gpu.Buffer {
	b, err := m.d.Alloc(n)
	m.must(err)
	return b
}

// matrix is a random weight, small enough that activations stay tame.
func (m *benchModel) matrix(dtype gpu.DType, rows, cols int) gpu.Matrix {
	length, bytes := dtype.Block()
	data := make([]byte, rows*cols/length*bytes)
	for i := range data {
		data[i] = byte(m.random.Uint32())
	}
	for at := 0; at < len(data); at += bytes {
		switch { // a small scale, or a small number
		case dtype == gpu.F32:
			data[at+3] = data[at+3]&0x80 | 0x3c
		case dtype == gpu.BF16:
			data[at+1] = data[at+1]&0x80 | 0x3c
		case dtype == gpu.F16:
			data[at+1] = data[at+1]&0x80 | 0x24
		default:
			binary.LittleEndian.PutUint32(data[at:], 0x0c000c00)
		}
	}
	w, err := m.d.Pack(gpu.Tensor{Rows: rows, Cols: cols, DType: dtype, Data: data})
	m.must(err)
	return w
}

func (m *benchModel) build(dtype gpu.DType) {
	const rows = 512
	m.random = rand.New(rand.NewPCG(1, 2))
	m.embedding = m.matrix(dtype, benchVocabulary, benchDim)
	for range benchLayers {
		m.layers = append(m.layers, benchLayer{
			m.matrix(dtype, benchWidth, benchDim), m.matrix(dtype, benchDim, benchDim),
			m.matrix(dtype, 2*benchInner, benchDim), m.matrix(dtype, benchDim, benchInner)})
	}
	m.norm = m.buffer(benchDim)
	ones := make([]float32, benchDim)
	for i := range ones {
		ones[i] = 1
	}
	m.must(m.d.Write(m.norm, ones))
	m.hidden, m.x = m.buffer(rows*benchDim), m.buffer(rows*benchDim)
	m.qkv = m.buffer(rows * benchWidth)
	m.gateUp, m.mlp = m.buffer(rows*2*benchInner), m.buffer(rows*benchInner)
	m.logits = m.buffer(48 * benchVocabulary)
	for i := range benchHead / 2 {
		m.rope.Freqs = append(m.rope.Freqs, 1/float64(1+i*i))
	}
	m.rope.Scale = 1
	var err error
	m.kv, err = m.d.AllocKV(gpu.KVShape{Layers: benchLayers, Pages: 16 * 40, PageSize: benchPage,
		KVHeads: benchKVHeads, HeadDim: benchHead, DType: gpu.F16})
	m.must(err)
}

// run times passes of one sequence of so many rows from position 0, or, with a batch, of one token
// each for so many sequences, 64 tokens one after another.
func (m *benchModel) run(b *testing.B, rows, batch int) {
	tokens := rows
	b.ReportAllocs()
	for b.Loop() {
		if batch == 0 {
			m.forward([]gpu.AttentionSequence{{Rows: rows, Pages: m.pages(0)}})
			continue
		}
		tokens = 64 * batch
		for position := range 64 {
			var all []gpu.AttentionSequence
			for i := range batch {
				all = append(all, gpu.AttentionSequence{FirstRow: i, Rows: 1, Start: position,
					Pages: m.pages(i)})
			}
			m.forward(all)
		}
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(tokens)/seconds, "tokens/s")
	b.ReportMetric(0, "ns/op")
	if batch == 0 {
		// Of the blocks, the logits of one row, and the attention.
		layer := benchDim*(benchWidth+benchDim+3*benchInner) + rows*benchHeads*benchHead
		work := 2 * float64(rows) * float64(benchLayers*layer)
		b.ReportMetric(work/seconds/1e9, "GFLOP/s")
	}
}

// pages are those of sequence i.
func (m *benchModel) pages(i int) []int32 {
	out := make([]int32, 512/benchPage)
	for k := range out {
		out[k] = int32((i*len(out) + k) % (16 * 40))
	}
	return out
}

func (m *benchModel) forward(sequences []gpu.AttentionSequence) {
	var tokens, positions, slots []int32
	for _, s := range sequences {
		for r := range s.Rows {
			position := s.Start + r
			tokens = append(tokens, int32((position*7+1)%benchVocabulary))
			positions = append(positions, int32(position))
			slots = append(slots, s.Pages[position/benchPage]*benchPage+int32(position%benchPage))
		}
	}
	d, rows := m.d, len(tokens)
	product := func(dst, x gpu.Buffer, w gpu.Matrix, rows int, accumulate bool) {
		m.must(d.MatMul(gpu.MatMulArgs{Dst: dst, X: x, W: w, Rows: rows, Accumulate: accumulate}))
	}
	norm := gpu.NormArgs{Dst: m.x, X: m.hidden, Weight: m.norm, Rows: rows, Dim: benchDim,
		Eps: 1e-5}
	m.must(d.Embed(m.hidden, m.embedding, tokens, 1))
	for i := range m.layers {
		l := &m.layers[i]
		m.must(d.Norm(norm))
		product(m.qkv, m.x, l.qkv, rows, false)
		m.must(d.RopeAppend(gpu.RopeArgs{QKV: m.qkv, KV: m.kv, Layer: i, Heads: benchHeads,
			KVHeads: benchKVHeads, HeadDim: benchHead, Positions: positions, Slots: slots,
			Rope: &m.rope}))
		m.must(d.Attention(gpu.AttentionArgs{Dst: m.x, QKV: m.qkv, KV: m.kv, Layer: i,
			Heads: benchHeads, KVHeads: benchKVHeads, HeadDim: benchHead, Scale: 0.125,
			Sequences: sequences}))
		product(m.hidden, m.x, l.out, rows, true)
		m.must(d.Norm(norm))
		product(m.gateUp, m.x, l.gateUp, rows, false)
		m.must(d.GLU(gpu.GLUArgs{Dst: m.mlp, GateUp: m.gateUp, Rows: rows, Width: benchInner}))
		product(m.hidden, m.mlp, l.down, rows, true)
	}
	norm.Rows = min(len(sequences), 48)
	m.must(d.Norm(norm))
	product(m.logits, m.x, m.embedding, norm.Rows, false)
}
