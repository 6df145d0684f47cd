package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/kvrelay/engine/gpu"
)

// Limits are what a device does at most with one kind of work: operations and bytes a second.
// Pairs and Tiles are 0 where there are none.
type Limits struct{ FMA, Dot, Small, Pairs, Tiles, Cache, Memory float64 }

// Kernels measures the kernels of a device one by one, on the shapes of a model.
type Kernels struct {
	Device gpu.Device
	Limits Limits
	Label  string // of the device, before each name: "avx512 t2"
	// Product bounds the operations a second of products by weights of a type on so many rows.
	Product func(t gpu.DType, rows int) float64
	Shape   KernelShape
	DTypes  []gpu.DType // of weights
	KV      []gpu.DType // of keys and values
	Rows    []int
	// Far is more than the caches hold: weights that are read once a step come from so many bytes.
	Far    int
	Repeat int
	Clock  func() time.Duration
	// Done hears each result; nil hears nothing.
	Done func(KernelResult)

	ctx context.Context // of Run
}

// KernelShape is the model whose kernels are measured.
type KernelShape struct {
	Hidden, Inner, Heads, KVHeads, HeadDim, Layers, Vocabulary int
}

// SmolShape is that of SmolLM2-135M.
var SmolShape = KernelShape{Hidden: 576, Inner: 1536, Heads: 9, KVHeads: 3, HeadDim: 64,
	Layers: 30, Vocabulary: 49152}

func (s KernelShape) width() int { return (s.Heads + 2*s.KVHeads) * s.HeadDim }

// KernelResult is what one kernel reached.
type KernelResult struct {
	Name       string
	Operations float64 // of a call
	Bytes      float64 // of a call, at least: each weight, key and value once
	Seconds    []float64
	// Compute and Bandwidth are the limits that bound the kernel; a Compute of 0 bounds nothing.
	Compute, Bandwidth float64
}

// Took is the median time of a call in seconds.
func (k KernelResult) Took() float64 { return Quantile(k.Seconds, 0.5) }

// OfLimit is which part of its time the kernel would need at its limits: it computes while it
// reads.
func (k KernelResult) OfLimit() float64 {
	least := k.Bytes / k.Bandwidth
	if k.Compute > 0 {
		least = max(least, k.Operations/k.Compute)
	}
	return least / k.Took()
}

// Rows are the figures by which two results compare.
func (k KernelResult) Rows() []Row {
	rate := func(work float64) (samples []float64) {
		for _, s := range k.Seconds {
			samples = append(samples, work/s/1e9)
		}
		return samples
	}
	bytes := RowOf(k.Name, "GB/s", rate(k.Bytes))
	bytes.Share = bytes.Value * 1e9 / k.Bandwidth
	if k.Compute == 0 {
		return []Row{bytes}
	}
	operations := RowOf(k.Name, "GFLOP/s", rate(k.Operations))
	operations.Share = operations.Value * 1e9 / k.Compute
	bytes.Name += " (bytes)"
	return []Row{operations, bytes}
}

// Rows are the limits themselves.
func (l Limits) Rows(label string) []Row {
	row := func(name, unit string, x float64) Row {
		return Row{Name: label + " limit " + name, Unit: unit, Value: x / 1e9, Share: 1,
			Machine: true}
	}
	rows := []Row{row("float32 multiply-add", "GFLOP/s", l.FMA),
		row("int8 dot", "GFLOP/s", l.Dot),
		row("second-level cache", "GB/s", l.Cache), row("memory", "GB/s", l.Memory)}
	if l.Small > 0 {
		rows = append(rows, row("int8 dot of weights below 32", "GFLOP/s", l.Small))
	}
	if l.Pairs > 0 {
		rows = append(rows, row("bfloat16 pairs", "GFLOP/s", l.Pairs))
	}
	if l.Tiles > 0 {
		rows = append(rows, row("bfloat16 tiles", "GFLOP/s", l.Tiles))
	}
	return rows
}

// leastSample is the shortest time that one sample covers: shorter calls are repeated.
const leastSample = 10 * time.Millisecond

// call is a kernel ready to be measured. Run's i-th call works on what the caches have forgotten
// since, where the kernel has so much.
type call struct {
	name       string
	operations float64
	bytes      float64
	compute    float64
	bandwidth  float64
	run        func(i int) error
}

// Count is how many results Run gives.
func (k *Kernels) Count() int {
	const products, rowwise = 4, 3 // of a layer
	each := 0
	for _, rows := range k.Rows {
		if each += products; rows <= headRows {
			each++
		}
	}
	return len(k.DTypes)*each + len(k.KV)*len(attentionCases) + len(k.Rows)*rowwise
}

// Run measures all of them.
func (k *Kernels) Run(ctx context.Context) ([]KernelResult, error) {
	k.ctx = ctx
	var results []KernelResult
	note := func(list []KernelResult, err error) error {
		results = append(results, list...)
		return err
	}
	for _, dtype := range k.DTypes {
		if err := note(k.products(dtype)); err != nil {
			return nil, fmt.Errorf("products by %v: %w", dtype, err)
		}
	}
	for _, measure := range []func() ([]KernelResult, error){k.attentions, k.rowwise} {
		if err := note(measure()); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// sample runs calls in turn, as a step of a model does, and times each for itself.
func (k *Kernels) sample(calls []call) ([]KernelResult, error) {
	results := make([]KernelResult, len(calls))
	at := make([]int, len(calls))
	for i, c := range calls {
		results[i] = KernelResult{Name: k.Label + " " + c.name, Operations: c.operations,
			Bytes: c.bytes, Compute: c.compute, Bandwidth: c.bandwidth}
	}
	for round := -1; round < k.Repeat; round++ { // The first warms up.
		if err := k.ctx.Err(); err != nil {
			return nil, err
		}
		took, times := make([]time.Duration, len(calls)), 0
		for begun := k.Clock(); times == 0 || k.Clock()-begun < leastSample; times++ {
			for i := range calls {
				before := k.Clock()
				if err := calls[i].run(at[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", calls[i].name, err)
				}
				took[i] += k.Clock() - before
				at[i]++
			}
		}
		for i := range calls {
			if round >= 0 {
				results[i].Seconds = append(results[i].Seconds,
					took[i].Seconds()/float64(times))
			}
		}
	}
	if k.Done != nil {
		for _, r := range results {
			k.Done(r)
		}
	}
	return results, nil
}
