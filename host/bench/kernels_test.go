package bench

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// someKernels measures a small shape on a device whose calls take a millisecond each.
func someKernels(t *testing.T, isa cpu.ISA) *Kernels {
	d, err := cpu.Open(cpu.Options{Threads: 2, ISA: isa})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	now := time.Duration(0)
	return &Kernels{Device: d, Limits: Limits{FMA: 4e9, Dot: 8e9, Cache: 2e9, Memory: 1e9},
		Label: "x", DTypes: []gpu.DType{gpu.BF16, gpu.Q8_0, gpu.Q4_K, gpu.Q6_K},
		KV: []gpu.DType{gpu.BF16}, Product: func(t gpu.DType, rows int) float64 {
			if t.Quantised() {
				return 8e9
			}
			return 4e9
		},
		Rows: []int{1, 3}, Far: 100 << 10, Repeat: 2,
		Shape: KernelShape{Hidden: 64, Inner: 300, Heads: 4, KVHeads: 2, HeadDim: 16, Layers: 2,
			Vocabulary: 200},
		Clock: func() time.Duration { now += time.Millisecond; return now }}
}

func TestKernels(t *testing.T) {
	k := someKernels(t, cpu.Auto)
	heard := 0
	k.Done = func(KernelResult) { heard++ }
	results, err := k.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]KernelResult{}
	for _, r := range results {
		if _, twice := byName[r.Name]; twice || len(r.Seconds) != k.Repeat {
			t.Errorf("%s: twice %v, %d samples", r.Name, twice, len(r.Seconds))
		}
		if math.Abs(r.Took()-1e-3) > 1e-12 {
			t.Errorf("%s took %v s, the clock says 1 ms", r.Name, r.Took())
		}
		byName[r.Name] = r
	}
	if want := 4*2*5 + 7 + 2*3; len(results) != want || heard != want || k.Count() != want {
		t.Errorf("%d results, %d heard, want %d", len(results), heard, want)
	}
	const kv, bf = 2 * 2 * 16 * 2, 2 // bytes of a token in a layer, and of a number
	for name, want := range map[string]struct{ operations, bytes, compute, bandwidth float64 }{
		"x matmul bf16 128x64, 3 rows": {2 * 3 * 128 * 64, bf*128*64 + 4*3*(128+64), 4e9, 1e9},
		"x matmul q8_0 64x320, 1 rows": {2 * 64 * 320, 64*10*34 + 4*(64+320), 8e9, 1e9},
		"x matmul q4_k 200x256, 1 rows": {2 * 200 * 256, 200*144 + 4*(200+256), 8e9,
			1e9}, // 64 columns are no whole block of 256
		"x attention bf16 prefill 512 @ d0": {4 * (512 * 513 / 2) * 64, 512*kv + 4*512*2*64, 4e9,
			1e9},
		"x attention bf16 decode x1 @ d512": {4 * 513 * 64, 513*kv + 4*2*64, 4e9, 1e9},
		"x norm 64, 3 rows":                 {0, 4 * 3 * 2 * 64, 0, 2e9},
		"x glu silu 300, 1 rows":            {0, 4 * 3 * 300, 0, 2e9},
	} {
		r, ok := byName[name]
		got := [4]float64{r.Operations, r.Bytes, r.Compute, r.Bandwidth}
		if !ok || got != [4]float64{want.operations, want.bytes, want.compute, want.bandwidth} {
			t.Errorf("%s: %v %v, want %v", name, ok, got, want)
		}
	}
}

// TestKernelShares: a kernel that computes and reads at once is bound by the slower of the two.
func TestKernelShares(t *testing.T) {
	k := KernelResult{Name: "k", Operations: 2e9, Bytes: 1e9, Seconds: []float64{4, 1, 2},
		Compute: 4e9, Bandwidth: 1e9}
	rows := k.Rows()
	if len(rows) != 2 || rows[0].Value != 1 || rows[0].Share != 0.25 || rows[1].Value != 0.5 ||
		rows[1].Share != 0.5 || rows[1].Name != "k (bytes)" || k.OfLimit() != 0.5 {
		t.Errorf("%+v, of the limit %v", rows, k.OfLimit())
	}
	k.Operations = 8e9
	if k.OfLimit() != 1 {
		t.Errorf("bound by arithmetic: %v", k.OfLimit())
	}
	k.Compute = 0
	if rows := k.Rows(); len(rows) != 1 || rows[0].Unit != "GB/s" || k.OfLimit() != 0.5 {
		t.Errorf("no arithmetic: %+v", rows)
	}
	r := Result{Rows: k.Rows()}
	var page strings.Builder
	if err := r.WritePage(&page); err != nil || !strings.Contains(page.String(), "50 %") {
		t.Errorf("%v\n%s", err, page.String())
	}
}

func TestKernelsStop(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := someKernels(t, cpu.Go).Run(ctx); err == nil ||
		!strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Error(err)
	}
}
