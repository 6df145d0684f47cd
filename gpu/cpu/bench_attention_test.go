package cpu_test

import (
	"fmt"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// BenchmarkAttention times one layer of a model of 135 million parameters, for the last rows of a
// long prompt and for a token behind it, by the type of keys and values.
func BenchmarkAttention(b *testing.B) {
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVX2} {
		for _, dtype := range []gpu.DType{gpu.F32, gpu.F16, gpu.Q8_0} {
			for _, rows := range []int{512, 1} {
				b.Run(fmt.Sprintf("%s/%v/rows=%d", isa, dtype, rows),
					func(b *testing.B) { benchmarkAttention(b, isa, dtype, rows) })
			}
		}
	}
}

func benchmarkAttention(b *testing.B, isa cpu.ISA, dtype gpu.DType, rows int) {
	const heads, kvHeads, dim, depth, pageSize = 9, 3, 64, 4096, 16
	d := open(b, cpu.Options{Threads: 1, ISA: isa})
	defer d.Close()
	kv, err := d.AllocKV(gpu.KVShape{Layers: 1, Pages: depth / pageSize, PageSize: pageSize,
		KVHeads: kvHeads, HeadDim: dim, DType: dtype})
	if err != nil {
		b.Fatal(err)
	}
	qkv, errQ := d.Alloc(depth * (heads + 2*kvHeads) * dim)
	dst, errDst := d.Alloc(rows * heads * dim)
	if errQ != nil || errDst != nil {
		b.Fatal(errQ, errDst)
	}
	rope := gpu.RopeArgs{QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads, HeadDim: dim,
		Rope: &gpu.Rope{Freqs: []float64{1}, Scale: 1}}
	a := gpu.AttentionArgs{Dst: dst, QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads,
		HeadDim: dim, Scale: 1, Sequences: []gpu.AttentionSequence{{Rows: rows,
			Start: depth - rows}}}
	for p := range int32(depth) {
		rope.Positions, rope.Slots = append(rope.Positions, p), append(rope.Slots, p)
		if p%pageSize == 0 {
			a.Sequences[0].Pages = append(a.Sequences[0].Pages, p/pageSize)
		}
	}
	if err := d.RopeAppend(rope); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := d.Attention(a); err != nil {
			b.Fatal(err)
		}
	}
}
