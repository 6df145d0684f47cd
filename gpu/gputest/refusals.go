package gputest

import (
	"encoding/binary"
	"math"

	"github.com/kvrelay/engine/gpu"
)

// decode widens numbers as they leave a pool.
func decode(dtype gpu.DType, data []byte) []float32 {
	length, bytes := dtype.Block()
	out := make([]float32, len(data)/bytes*length)
	for i := range out {
		switch dtype {
		case gpu.F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		case gpu.BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		case gpu.F16:
			out[i] = half(binary.LittleEndian.Uint16(data[2*i:]))
		case gpu.Q8_0:
			block := data[i/length*bytes:]
			out[i] = half(binary.LittleEndian.Uint16(block)) * float32(int8(block[2+i%length]))
		}
	}
	return out
}

// half is the value of an IEEE binary16.
func half(h uint16) float32 {
	sign, exponent, mantissa := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch {
	case exponent == 0:
		return float32(sign * math.Ldexp(mantissa, -24))
	case exponent == 31 && mantissa > 0:
		return float32(math.NaN())
	case exponent == 31:
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+mantissa, exponent-25))
}

// testRefusals: arguments outside what was allocated are errors, not other people's memory.
func testRefusals(p *pair) {
	d := p.device
	l := layout{heads: 2, kvHeads: 1, dim: 8, rotated: 8, pageSize: 16}
	c := p.cache(d, l, 2)
	small, row := p.buffer(d, make([]float32, 4)), p.buffer(d, make([]float32, l.width()))
	w := p.pack(d, p.tensor(gpu.F32, 5, 8))
	rope := func(position, slot int32) error {
		return d.RopeAppend(gpu.RopeArgs{QKV: row, KV: c.kv, Heads: 2, KVHeads: 1, HeadDim: 8,
			Positions: []int32{position}, Slots: []int32{slot}, Rope: c.rope})
	}
	attend := func(s gpu.AttentionSequence) error {
		return d.Attention(gpu.AttentionArgs{Dst: row, QKV: row, KV: c.kv, Heads: 2, KVHeads: 1,
			HeadDim: 8, Scale: 1, Sequences: []gpu.AttentionSequence{s}})
	}
	one, token := []int32{0}, make([]byte, 64)
	norm := func(dim int) error {
		return d.Norm(gpu.NormArgs{Dst: row, X: row, Weight: row, Rows: 1, Dim: dim})
	}
	matmul := func(dst, x, bias gpu.Buffer) error {
		return d.MatMul(gpu.MatMulArgs{Dst: dst, X: x, W: w, Rows: 1, Bias: bias,
			Accumulate: bias != nil})
	}
	add := func(width int, rows ...int32) error {
		return d.AddRows(gpu.AddRowsArgs{Dst: small, X: row, Rows: rows, Factors: []float32{1, 1},
			Width: width})
	}
	for name, err := range map[string]error{
		"token above the table":  d.Embed(row, w, []int32{5}, 1),
		"negative token":         d.Embed(row, w, []int32{-1}, 1),
		"embedding too wide":     d.Embed(small, w, []int32{0}, 1),
		"norm outside its row":   norm(99),
		"matmul destination":     matmul(small, row, nil),
		"matmul source":          matmul(row, small, nil),
		"bias and accumulation":  matmul(row, row, row),
		"slot outside the pool":  rope(0, 32),
		"negative slot":          rope(0, -1),
		"negative position":      rope(-1, 0),
		"page outside the pool":  attend(gpu.AttentionSequence{Rows: 1, Pages: []int32{2}}),
		"page gone in sight":     attend(gpu.AttentionSequence{Rows: 1, Pages: []int32{-1}}),
		"position without page":  attend(gpu.AttentionSequence{Rows: 1, Start: 16, Pages: one}),
		"rows outside the batch": attend(gpu.AttentionSequence{FirstRow: 2, Rows: 1, Pages: one}),
		"glu too wide":           d.GLU(gpu.GLUArgs{Dst: row, GateUp: small, Rows: 1, Width: 4}),
		"gather outside":         d.Gather(small, row, []int32{9}, 4),
		"rows added outside":     add(2, 0, 2),
		"a row added twice":      add(1, 1, 1),
		"a negative row added":   add(1, -1, 0),
		"rows without factors":   add(1, 0),
		"copy of too many":       d.CopyKV(c.kv, []gpu.KVCopy{{From: 0, To: 1, Tokens: 17}}),
		"copy to nowhere":        d.CopyKV(c.kv, []gpu.KVCopy{{From: 0, To: 2}}),
		"short pack buffer":      d.PackKV(c.kv, gpu.KVRange{Count: 1}, nil),
		"unpack past the page":   d.UnpackKV(c.kv, gpu.KVRange{First: 16, Count: 1}, token),
	} {
		if err == nil {
			p.Errorf("%s: not refused", name)
		}
	}
	if _, err := d.Pack(gpu.Tensor{Rows: 2, Cols: 2, Data: make([]byte, 15)}); err == nil {
		p.Error("a tensor shorter than its shape was packed")
	}
	if _, err := d.Alloc(-1); err == nil {
		p.Error("a negative allocation was granted")
	}
	p.refusesPools()
}

// refusesPools: a page pool has a size, and blocks that lie within a head.
func (p *pair) refusesPools() {
	p.Helper()
	for name, shape := range map[string]gpu.KVShape{
		"without pages": {Layers: 1},
		"in blocks of 32 for heads of 48": {Layers: 1, Pages: 1, PageSize: 16, KVHeads: 1,
			HeadDim: 48, DType: gpu.Q8_0},
		"in q4_0": {Layers: 1, Pages: 1, PageSize: 16, KVHeads: 1, HeadDim: 32, DType: gpu.Q4_0},
	} {
		if _, err := p.device.AllocKV(shape); err == nil {
			p.Errorf("a pool %s was granted", name)
		}
	}
}
