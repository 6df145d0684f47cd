package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// TestDeepAttention: rows of a chunk far behind others, which tasks are longer for, have the bits
// of the twin.
func TestDeepAttention(t *testing.T) {
	seed := rand.Uint64()
	want := deepAttention(t, cpu.NewTwin(cpu.NumericsFMA), seed)
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVX2, cpu.Go} {
		t.Run(string(isa), func(t *testing.T) {
			d := open(t, cpu.Options{Threads: 1, ISA: isa})
			defer d.Close()
			for i, got := range deepAttention(t, d, seed) {
				if math.Float32bits(got) != math.Float32bits(want[i]) {
					t.Fatalf("seed %d: output %d is %v, want %v", seed, i, got, want[i])
				}
			}
		})
	}
}

// deepAttention is what the last rows of a sequence of random numbers see.
func deepAttention(t *testing.T, d gpu.Device, seed uint64) []float32 {
	const heads, kvHeads, dim, depth, rows, pageSize = 8, 2, 16, 1030, 121, 24
	const width, positions = (heads + 2*kvHeads) * dim, depth + rows
	kv, err := d.AllocKV(gpu.KVShape{Layers: 1, Pages: positions/pageSize + 1, PageSize: pageSize,
		KVHeads: kvHeads, HeadDim: dim, DType: gpu.F16})
	qkv, errQ := d.Alloc(positions * width)
	dst, errDst := d.Alloc(rows * heads * dim)
	if err != nil || errQ != nil || errDst != nil {
		t.Fatal(err, errQ, errDst)
	}
	r, x, out := rand.New(rand.NewPCG(seed, 0)), make([]float32, positions*width),
		make([]float32, rows*heads*dim)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	rope := gpu.RopeArgs{QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads, HeadDim: dim,
		Rope: &gpu.Rope{Freqs: []float64{1}, Scale: 1}}
	sequence := gpu.AttentionSequence{FirstRow: 0, Rows: rows, Start: depth}
	for p := range int32(positions) {
		rope.Positions, rope.Slots = append(rope.Positions, p), append(rope.Slots, p)
		if p%pageSize == 0 {
			sequence.Pages = append(sequence.Pages, p/pageSize)
		}
	}
	for _, err := range []error{d.Write(qkv, x), d.RopeAppend(rope),
		d.Attention(gpu.AttentionArgs{Dst: dst, QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads,
			HeadDim: dim, Scale: 0.5, Sequences: []gpu.AttentionSequence{sequence}}),
		d.Read(out, dst, 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
