package cuda_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// TestRangesArrive: slots of many pages come in by one copy and one kernel, and lie where they do
// when each range comes by itself; what is too large for one copy comes in several.
func TestRangesArrive(t *testing.T) {
	for seed := range uint64(4) {
		d, state := open(t, cuda.Options{}, fake.Options{Seed: seed})
		random := rand.New(rand.NewPCG(seed, 6))
		for _, shape := range []gpu.KVShape{
			{Layers: 2, Pages: 40, PageSize: 16, KVHeads: 2, HeadDim: 24, DType: gpu.BF16},
			{Layers: 2, Pages: 9, PageSize: 256, KVHeads: 8, HeadDim: 128, DType: gpu.F32},
		} {
			together, apart := pool(t, d, shape), pool(t, d, shape)
			var ranges []gpu.KVRange
			var all []byte
			for _, page := range random.Perm(shape.Pages - 1) {
				r := gpu.KVRange{Layer: 1, Page: page, First: random.IntN(shape.PageSize)}
				if page == 0 {
					r.First = 0
				}
				r.Count = shape.PageSize - r.First
				data := make([]byte, r.Count*shape.TokenBytes())
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				if err := d.UnpackKV(apart, r, data); err != nil {
					t.Fatal(err)
				}
				ranges, all = append(ranges, r), append(all, data...)
			}
			before := len(state.Timeline())
			if err := d.UnpackRanges(together, ranges, all); err != nil {
				t.Fatal(err)
			}
			if n := len(state.Timeline()) - before; shape.PageSize == 16 && n != 2 {
				t.Errorf("seed %d: %d operations, want a copy and a kernel", seed, n)
			}
			for _, r := range ranges {
				got := make([]byte, r.Count*shape.TokenBytes())
				want := bytes.Clone(got)
				if d.PackKV(together, r, got) != nil || d.PackKV(apart, r, want) != nil ||
					!bytes.Equal(got, want) || !bytes.Equal(got, all[:len(got)]) {
					t.Fatalf("seed %d: %+v differs", seed, r)
				}
				all = all[len(got):]
			}
			if d.UnpackRanges(together, ranges, nil) == nil ||
				d.UnpackRanges(together, ranges[:1], make([]byte, 1<<22)) == nil {
				t.Error("bytes that are not those of the ranges were taken")
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func pool(t *testing.T, d *cuda.Device, shape gpu.KVShape) gpu.KV {
	t.Helper()
	k, err := d.AllocKV(shape)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
