package cpu_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// fingerprint is what one small layer gives in the numerics class fma. It is the same on every
// machine and every processor: prefill and decode may run on different ones. A change of this
// number is a new numerics class.
const fingerprint = "ee5aa961e884bd105cbcadfd2523ae675d6aaf4350253008b86ecd0ce62769f2"

// fingerprintTDP is that of the class tdp.
const fingerprintTDP = "5b7a07b4be1182a102f2853de5983efaf9b6bde711b97c05291d18a9ef258252"

// fingerprintBF16 is that of the class fma-bf16, with weights in BF16.
const fingerprintBF16 = "2c37c7fa98c2fcfecb1a0d90323c183ff89337f59372d54c33f9174a1b0f39f4"

func TestFingerprint(t *testing.T) {
	for _, c := range []struct {
		class, want string
		weights     gpu.DType
		options     cpu.Options
	}{
		{cpu.NumericsFMA, fingerprint, gpu.F32, cpu.Options{}},
		{cpu.NumericsTDP, fingerprintTDP, gpu.F32, cpu.Options{TDP: true}},
		{cpu.NumericsBF16, fingerprintBF16, gpu.BF16, cpu.Options{BF16Activations: true}},
	} {
		plain := c.options
		plain.ISA, plain.Threads = cpu.Go, 2
		for _, d := range []gpu.Device{cpu.NewTwin(c.class), open(t, plain), open(t, c.options)} {
			got := fmt.Sprintf("%x", sha256.Sum256(layerBytes(t, d, c.weights)))
			if got != c.want {
				t.Errorf("%s %s: fingerprint %s, want %s", d.Name(), c.class, got, c.want)
			}
			d.Close()
		}
	}
}

// numbers are exact in float32, between -1 and 1, and differ from seed to seed.
func numbers(seed uint32, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		seed = seed*1664525 + 1013904223
		out[i] = float32(int32(seed)>>8) / (1 << 23)
	}
	return out
}

// layerBytes runs every arithmetic kernel once, each on what the one before it gave.
func layerBytes(t *testing.T, d gpu.Device, weights gpu.DType) []byte {
	const rows, heads, kvHeads, dim, width = 90, 4, 2, 24, 96
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	buffer := func(values []float32) gpu.Buffer {
		b, err := d.Alloc(len(values))
		must(err)
		must(d.Write(b, values))
		return b
	}
	weight := func(seed uint32, out, in int) gpu.Matrix {
		data := []byte{}
		for _, x := range numbers(seed, out*in) {
			bits := math.Float32bits(x / 4)
			if weights == gpu.BF16 {
				data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
			} else {
				data = binary.LittleEndian.AppendUint32(data, bits)
			}
		}
		w, err := d.Pack(gpu.Tensor{Rows: out, Cols: in, DType: weights, Data: data})
		must(err)
		return w
	}
	const qkvWidth = (heads + 2*kvHeads) * dim
	hidden, x := buffer(numbers(1, rows*width)), buffer(make([]float32, rows*width))
	qkv, wide := buffer(make([]float32, rows*qkvWidth)), buffer(make([]float32, rows*2*width))
	norm := gpu.NormArgs{Dst: x, X: hidden, Weight: buffer(numbers(2, width)),
		Rows: rows, Dim: width, Eps: 1e-5}
	must(d.Norm(norm))
	must(d.MatMul(gpu.MatMulArgs{Dst: qkv, X: x, W: weight(3, qkvWidth, width), Rows: rows}))
	kv, err := d.AllocKV(gpu.KVShape{Layers: 1, Pages: 6, PageSize: 16, KVHeads: kvHeads,
		HeadDim: dim})
	must(err)
	rope := gpu.RopeArgs{QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads, HeadDim: dim,
		Rope: &gpu.Rope{Scale: 1}}
	for i := range dim / 2 {
		rope.Rope.Freqs = append(rope.Rope.Freqs, 1/float64(1+i*i))
	}
	for r := range int32(rows) {
		rope.Positions, rope.Slots = append(rope.Positions, r), append(rope.Slots, r)
	}
	must(d.RopeAppend(rope))
	must(d.Attention(gpu.AttentionArgs{Dst: x, QKV: qkv, KV: kv, Heads: heads, KVHeads: kvHeads,
		HeadDim: dim, Scale: 0.2, Sequences: []gpu.AttentionSequence{
			{Rows: rows, Pages: []int32{0, 1, 2, 3, 4, 5}}}}))
	must(d.MatMul(gpu.MatMulArgs{
		Dst: hidden, X: x, W: weight(4, width, width), Rows: rows, Accumulate: true}))
	for _, activation := range []gpu.Activation{gpu.SiLU, gpu.GELUTanh} {
		must(d.Norm(norm))
		must(d.MatMul(gpu.MatMulArgs{Dst: wide, X: x, W: weight(5, 2*width, width), Rows: rows}))
		must(d.GLU(gpu.GLUArgs{Dst: x, GateUp: wide, Rows: rows, Width: width,
			Activation: activation}))
		must(d.MatMul(gpu.MatMulArgs{
			Dst: hidden, X: x, W: weight(6, width, width), Rows: rows, Accumulate: true}))
	}
	out := make([]float32, rows*width)
	must(d.Read(out, hidden, 0))
	data := []byte{}
	for _, v := range out {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
