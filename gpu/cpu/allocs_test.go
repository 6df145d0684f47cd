package cpu_test

import (
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// TestKernelsAllocateNothing: once the device has seen a batch of a size, a step of that size
// leaves no garbage, so that serving does not wait for its collector.
func TestKernelsAllocateNothing(t *testing.T) {
	for _, dtype := range []gpu.DType{gpu.F16, gpu.BF16, gpu.Q8_0, gpu.Q4_K} {
		for _, rows := range []int{1, 3, 40} {
			for _, stored := range []gpu.DType{gpu.F16, gpu.Q8_0} {
				d := open(t, cpu.Options{Threads: 2, BF16Activations: dtype == gpu.BF16})
				step := smallStep(t, d, [2]gpu.DType{dtype, stored}, rows)
				if n := testing.AllocsPerRun(20, step); n != 0 {
					t.Errorf("%v on %v, %d rows: %v allocations a step", dtype, stored, rows, n)
				}
				d.Close()
			}
		}
	}
}

// smallStep is one layer of a small model on rows of one sequence; dtypes are those of weights, and
// of keys and values.
func smallStep(t *testing.T, d gpu.Device, dtypes [2]gpu.DType, rows int) func() {
	const heads, kvHeads, dim, hidden = 4, 2, 64, 256
	const width = (heads + 2*kvHeads) * dim
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	buffer := func(n int) gpu.Buffer {
		b, err := d.Alloc(n)
		must(err)
		return b
	}
	weight := func(n, k int) gpu.Matrix {
		w, err := d.Pack(gpu.Tensor{Rows: n, Cols: k, DType: dtypes[0],
			Data: make([]byte, n*dtypes[0].RowBytes(k))})
		must(err)
		return w
	}
	kv, err := d.AllocKV(gpu.KVShape{Layers: 1, Pages: 4, PageSize: 16, KVHeads: kvHeads,
		HeadDim: dim, DType: dtypes[1]})
	must(err)
	x, qkv, wide := buffer(rows*hidden), buffer(rows*width), buffer(rows*2*hidden)
	norm, table := buffer(hidden), weight(300, hidden)
	project, up, down := weight(width, hidden), weight(2*hidden, hidden), weight(hidden, hidden)
	rope := gpu.RopeArgs{QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads, HeadDim: dim,
		Rope: &gpu.Rope{Freqs: []float64{1, 0.5, 0.1}, Scale: 1}}
	tokens := make([]int32, rows)
	for r := range int32(rows) {
		rope.Positions, rope.Slots = append(rope.Positions, r), append(rope.Slots, r)
	}
	sequences := []gpu.AttentionSequence{{Rows: rows, Pages: []int32{0, 1, 2, 3}}}
	return func() {
		must(d.Embed(x, table, tokens, 1))
		must(d.Norm(gpu.NormArgs{Dst: x, X: x, Weight: norm, Rows: rows, Dim: hidden, Eps: 1}))
		must(d.MatMul(gpu.MatMulArgs{Dst: qkv, X: x, W: project, Rows: rows}))
		must(d.RopeAppend(rope))
		must(d.Attention(gpu.AttentionArgs{Dst: x, QKV: qkv, KV: kv, Heads: heads,
			KVHeads: kvHeads, HeadDim: dim, Scale: 1, Sequences: sequences}))
		must(d.MatMul(gpu.MatMulArgs{Dst: wide, X: x, W: up, Rows: rows}))
		must(d.GLU(gpu.GLUArgs{Dst: x, GateUp: wide, Rows: rows, Width: hidden}))
		must(d.MatMul(gpu.MatMulArgs{Dst: x, X: x, W: down, Rows: rows, Accumulate: true}))
	}
}
