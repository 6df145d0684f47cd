package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// sharedLimits are the KiB of shared memory that a block may have: less than any GPU in use has,
// sm_86 and sm_89, sm_80, sm_90.
var sharedLimits = []int{48, 99, 163, 227}

// attended is the attention of one batch: a chunk of a prompt behind a history, whose rows see two
// splits, a short prompt, and a row of decode.
func attended(t testing.TB, d *cuda.Device, dim int) []float32 {
	t.Helper()
	const heads, page, rows = 2, 64, 20 + 3 + 1
	shape := gpu.KVShape{Layers: 1, Pages: 24, PageSize: page, KVHeads: 1, HeadDim: dim,
		DType: gpu.BF16}
	kv, err := d.AllocKV(shape)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(dim)))
	data := make([]byte, page*shape.TokenBytes())
	for p := range shape.Pages {
		for i := 0; i < len(data); i += 2 {
			x := cpu.Bfloat(float32(random.NormFloat64()))
			binary.LittleEndian.PutUint16(data[i:], x)
		}
		if err := d.UnpackKV(kv, gpu.KVRange{Page: p, Count: page}, data); err != nil {
			t.Fatal(err)
		}
	}
	values := make([]float32, rows*(heads+2)*dim)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	qkv, err := d.Alloc(len(values))
	if err != nil {
		t.Fatal(err)
	}
	dst, err := d.Alloc(rows * heads * dim)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(qkv, values); err != nil {
		t.Fatal(err)
	}
	pages := func(from, n int) (all []int32) {
		for i := range n {
			all = append(all, int32(from+i))
		}
		return all
	}
	if err := d.Attention(gpu.AttentionArgs{Dst: dst, QKV: qkv, KV: kv, Heads: heads, KVHeads: 1,
		HeadDim: dim, Scale: 0.1, Sequences: []gpu.AttentionSequence{
			{Rows: 20, Start: 500, Pages: pages(0, 9)}, {FirstRow: 20, Rows: 3, Pages: pages(9, 1)},
			{FirstRow: 23, Rows: 1, Start: 600, Pages: pages(10, 10)}}}); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, rows*heads*dim)
	if err := d.Read(got, dst, 0); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestSharedMemoryLimits: a device whose blocks may have little shared memory takes heads of every
// size. The driver in Go refuses what does not fit, and kernels that touch more than they have.
func TestSharedMemoryLimits(t *testing.T) {
	for _, dim := range []int{64, 128, 256} {
		var want []float32
		for _, kib := range slices.Backward(sharedLimits) {
			d, _ := open(t, cuda.Options{}, fake.Options{Shared: kib << 10})
			got := attended(t, d, dim)
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("heads of %d, %d KiB: another result", dim, kib)
			}
			if err := d.Close(); err != nil {
				t.Error(fmt.Errorf("close: %w", err))
			}
		}
	}
}
