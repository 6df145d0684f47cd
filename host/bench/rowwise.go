package bench

import (
	"fmt"
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// attentionCase is a batch: so many sequences, of each so many rows behind so many tokens.
type attentionCase struct{ sequences, rows, depth int }

func (c attentionCase) String() string {
	if c.rows > 1 {
		return fmt.Sprintf("prefill %d @ d%d", c.rows, c.depth)
	}
	return fmt.Sprintf("decode x%d @ d%d", c.sequences, c.depth)
}

// attentionCases are a prompt's first chunk, one behind others, and tokens of few and of many.
var attentionCases = []attentionCase{{1, 512, 0}, {1, 512, 1536}, {1, 1, 512}, {1, 1, 2048},
	{8, 1, 512}, {16, 1, 512}, {16, 1, 2048}}

// kernelPage is the engine's default page size.
const kernelPage = 16

// attentions measures attention over pools of the size that the model's layers take.
func (k *Kernels) attentions() ([]KernelResult, error) {
	var results []KernelResult
	for _, dtype := range k.KV {
		for _, c := range attentionCases {
			list, err := k.attention(dtype, c)
			if err != nil {
				return nil, fmt.Errorf("attention %v, %v: %w", dtype, c, err)
			}
			results = append(results, list...)
		}
	}
	return results, nil
}

// attention measures one batch on as many layers as the model has, or as are more than the caches
// hold. Each has keys and values of its own, which then come from memory.
func (k *Kernels) attention(dtype gpu.DType, c attentionCase) ([]KernelResult, error) {
	s := k.Shape
	each := (c.depth + c.rows + kernelPage - 1) / kernelPage
	shape := gpu.KVShape{Pages: c.sequences * each, PageSize: kernelPage, KVHeads: s.KVHeads,
		HeadDim: s.HeadDim, DType: dtype}
	layer := c.sequences * (c.depth + c.rows) * shape.TokenBytes()
	shape.Layers = min(s.Layers, k.Far/layer+1)
	kv, err := k.Device.AllocKV(shape)
	if err != nil {
		return nil, err
	}
	if err := k.fillKV(kv); err != nil {
		return nil, err
	}
	rows := c.sequences * c.rows
	qkv, err := k.filled(rows * s.width())
	if err != nil {
		return nil, err
	}
	dst, err := k.Device.Alloc(rows * s.Heads * s.HeadDim)
	if err != nil {
		return nil, err
	}
	a := gpu.AttentionArgs{Dst: dst, QKV: qkv, KV: kv, Heads: s.Heads, KVHeads: s.KVHeads,
		HeadDim: s.HeadDim, Scale: 0.125}
	for i := range c.sequences {
		q := gpu.AttentionSequence{FirstRow: i * c.rows, Rows: c.rows, Start: c.depth}
		for p := range each {
			q.Pages = append(q.Pages, int32(i*each+p))
		}
		a.Sequences = append(a.Sequences, q)
	}
	seen := float64(rows) * (float64(c.depth) + float64(c.rows+1)/2) // keys, by all rows
	bandwidth := k.Limits.Cache
	if layer*shape.Layers > k.Far {
		bandwidth = k.Limits.Memory
	}
	return k.sample([]call{{
		name:       fmt.Sprintf("attention %v %v", dtype, c),
		operations: 4 * seen * float64(s.Heads*s.HeadDim),
		bytes:      float64(layer) + 4*float64(rows*(s.Heads+s.Heads)*s.HeadDim),
		compute:    k.Limits.FMA, bandwidth: bandwidth,
		run: func(i int) error {
			a.Layer = i % shape.Layers
			return k.Device.Attention(a)
		},
	}})
}

// fillKV writes into each page of a pool: memory that nobody wrote to is one page of zeros, and in
// the caches. A slot spreads over all of its page.
func (k *Kernels) fillKV(kv gpu.KV) error {
	s := kv.Shape()
	slot := someWeights(s.DType, 1, 2*s.KVHeads*s.HeadDim).Data
	for layer := range s.Layers {
		for p := range s.Pages {
			r := gpu.KVRange{Layer: layer, Page: p, Count: 1}
			if err := k.Device.UnpackKV(kv, r, slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowwise measures the kernels between the products. What they touch lies in the caches, as it does
// in a model, so they are held against the cache's bandwidth.
func (k *Kernels) rowwise() ([]KernelResult, error) {
	s := k.Shape
	most := slices.Max(append([]int{1}, k.Rows...))
	var buffers [5]gpu.Buffer
	for i, n := range []int{most * s.Hidden, s.Hidden, most * s.width(), most * 2 * s.Inner,
		most * s.Inner} {
		var err error
		if buffers[i], err = k.filled(n); err != nil {
			return nil, err
		}
	}
	kv, err := k.Device.AllocKV(gpu.KVShape{Layers: 1, Pages: most/kernelPage + 1,
		PageSize: kernelPage, KVHeads: s.KVHeads, HeadDim: s.HeadDim, DType: gpu.F16})
	if err != nil {
		return nil, err
	}
	var results []KernelResult
	for _, rows := range k.Rows {
		list, err := k.sample(k.rowCalls(rows, buffers, kv))
		if err != nil {
			return nil, err
		}
		results = append(results, list...)
	}
	return results, nil
}

// rowCalls are the kernels for so many rows, on hidden, a norm's weight, queries with keys and
// values, gate with up, and their product.
func (k *Kernels) rowCalls(rows int, buffers [5]gpu.Buffer, kv gpu.KV) []call {
	s, device := k.Shape, k.Device
	hidden, weight, qkv, gateUp, mlp := buffers[0], buffers[1], buffers[2], buffers[3], buffers[4]
	rope := gpu.RopeArgs{QKV: qkv, KV: kv, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
		Rope: &gpu.Rope{Scale: 1}}
	for i := range s.HeadDim / 2 {
		rope.Rope.Freqs = append(rope.Rope.Freqs, 1/float64(1+i*i))
	}
	for r := range rows {
		rope.Positions = append(rope.Positions, int32(r))
		rope.Slots = append(rope.Slots, int32(r))
	}
	row := func(name string, elements int, run func() error) call {
		return call{name: fmt.Sprintf("%s, %d rows", name, rows),
			bytes: 4 * float64(elements) * float64(rows), bandwidth: k.Limits.Cache,
			run: func(int) error { return run() }}
	}
	// The norm writes what it reads; the numbers stay around one, as the weights are.
	return []call{
		row(fmt.Sprintf("norm %d", s.Hidden), 2*s.Hidden, func() error {
			return device.Norm(gpu.NormArgs{Dst: hidden, X: hidden, Weight: weight, Rows: rows,
				Dim: s.Hidden, Eps: 1e-5})
		}),
		row(fmt.Sprintf("rope and append %dx%d", s.Heads+2*s.KVHeads, s.HeadDim),
			2*(s.Heads+s.KVHeads)*s.HeadDim+2*s.KVHeads*s.HeadDim,
			func() error { return device.RopeAppend(rope) }),
		row(fmt.Sprintf("glu silu %d", s.Inner), 3*s.Inner, func() error {
			return device.GLU(gpu.GLUArgs{Dst: mlp, GateUp: gateUp, Rows: rows, Width: s.Inner})
		}),
	}
}
