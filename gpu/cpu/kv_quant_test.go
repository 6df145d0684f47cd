package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// TestWiden holds the assembly that widens keys and values to its Go twins, whatever the bytes are:
// integers of -128, scales that are subnormal, infinite or no number.
func TestWiden(t *testing.T) {
	for _, isa := range []ISA{AVX2, AVX512} {
		if fast := fastMicro(isa); fast != nil {
			t.Run(string(isa), func(t *testing.T) { checkWiden(t, fast, goMicro()) })
		}
	}
}

func checkWiden(t *testing.T, fast, plain *micro) {
	const blocks = 3
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	q, scales := make([]byte, blocks*quantBlock*keyLanes), make([]uint16, blocks*keyLanes)
	for range 300 {
		for i := range q {
			q[i] = byte(r.Uint32())
		}
		for i := range scales {
			scales[i] = uint16(r.Uint32())
		}
		for i, kernels := range [][2]func(*widenCall){
			{fast.widenPanel, plain.widenPanel}, {fast.widenRow, plain.widenRow}} {
			size := blocks * quantBlock
			if i == 0 {
				size *= keyLanes
			}
			got, want := make([]float32, size+1), make([]float32, size+1)
			got[size], want[size] = 7, 7 // what lies behind stays
			call := widenCall{blocks: blocks, q: unsafe.Pointer(&q[0]),
				scales: unsafe.Pointer(&scales[0]), to: unsafe.Pointer(&got[0])}
			kernels[0](&call)
			call.to = unsafe.Pointer(&want[0])
			kernels[1](&call)
			same(t, seed, got, want)
		}
	}
}

// TestQ8KeepsHalfAStep: what a pool gives back lies within half a step of what was stored, a step
// being a 127th of the block's largest number, and the rounding of the scale.
func TestQ8KeepsHalfAStep(t *testing.T) {
	fast, err := Open(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	for _, device := range []gpu.Device{NewTwin(NumericsFMA), fast} {
		const dim, tokens = 96, 20
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		rows := make([]float32, tokens*3*dim)
		for i := range rows {
			rows[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()))
		}
		data := storedQ8(t, device, rows, dim)
		for i := range tokens {
			for half := range 2 {
				row := rows[i*3*dim+(1+half)*dim:][:dim]
				checkSteps(t, seed, row, data[half*len(data)/2+i*dim/32*34:][:dim/32*34])
			}
		}
	}
}

// storedQ8 appends rows of one query, key and value head to a page, and packs the page.
func storedQ8(t *testing.T, d gpu.Device, rows []float32, dim int) []byte {
	t.Helper()
	tokens := len(rows) / 3 / dim
	kv, err := d.AllocKV(gpu.KVShape{Layers: 1, Pages: 1, PageSize: tokens, KVHeads: 1,
		HeadDim: dim, DType: gpu.Q8_0})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	qkv, err := d.Alloc(len(rows))
	must(err)
	must(d.Write(qkv, rows))
	rope := gpu.RopeArgs{QKV: qkv, KV: kv, Heads: 1, KVHeads: 1, HeadDim: dim, Rope: &gpu.Rope{}}
	for i := range int32(tokens) {
		rope.Positions, rope.Slots = append(rope.Positions, i), append(rope.Slots, i)
	}
	must(d.RopeAppend(rope))
	data := make([]byte, tokens*kv.Shape().TokenBytes())
	must(d.PackKV(kv, gpu.KVRange{Count: tokens}, data))
	return data
}

// checkSteps compares a head with its stored blocks, which it reads by itself.
func checkSteps(t *testing.T, seed uint64, row []float32, stored []byte) {
	t.Helper()
	for b := range len(row) / 32 {
		block, largest := stored[b*34:][:34], 0.0
		for _, x := range row[b*32:][:32] {
			largest = max(largest, math.Abs(float64(x)))
		}
		scale := float64(halfToFloat(uint16(block[0]) | uint16(block[1])<<8))
		for i, x := range row[b*32:][:32] {
			got := scale * float64(int8(block[2+i]))
			if off := math.Abs(got - float64(x)); off > largest*(0.501/127+1.0/2048) {
				t.Fatalf("seed %d: %v was stored as %v, the block's largest is %v", seed, x, got,
					largest)
			}
		}
	}
}
