// Package gputest is the suite that every device must pass: each kernel on random shapes against
// cpu.Twin, which says what the kernels mean. Devices of the numerics class fma must give its
// bits; others must come close.
package gputest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// tolerance is how far a device of another class may be from the twin, relative to the larger of 1
// and the value.
const tolerance = 1e-3

// pair is a device under test beside the twin, and a random source whose seed a failure prints.
type pair struct {
	*testing.T
	device, twin gpu.Device
	random       *rand.Rand
	exact        bool
	stored       []gpu.DType // what the device keeps keys and values in
}

// Run tests every kernel of the devices that open returns; each test opens one and closes it.
func Run(t *testing.T, open func() gpu.Device) {
	for _, test := range []struct {
		name string
		run  func(*pair)
	}{
		{"Memory", testMemory}, {"Embed", testEmbed}, {"Norm", testNorm}, {"MatMul", testMatMul},
		{"Mixed", testMixed}, {"MatMulSpecials", testMatMulSpecials}, {"RowsAlone", testRowsAlone},
		{"RopeAppend", testRopeAppend}, {"Attention", testAttention}, {"Masks", testMasks},
		{"StaleSlots", testStaleSlots}, {"SlidOut", testSlidOut},
		{"Chunks", testChunks}, {"GLU", testGLU}, {"Gated", testGated},
		{"Gather", testGather}, {"AddRows", testAddRows}, {"Pages", testPages},
		{"Choice", testChoice},
		{"Refusals", testRefusals},
	} {
		t.Run(test.name, func(t *testing.T) {
			device := open()
			twin := cpu.NewTwin(cpu.NumericsFMA)
			switch class := device.Numerics(); class {
			case cpu.NumericsInt8, cpu.NumericsTDP, cpu.NumericsTDPInt8, cpu.NumericsBF16,
				cpu.NumericsBF16Int8:
				twin = cpu.NewTwin(class)
			}
			defer device.Close()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			test.run(&pair{T: t, device: device, twin: twin,
				random: rand.New(rand.NewPCG(seed, 0)),
				exact:  device.Numerics() == twin.Numerics(),
				stored: storedTypes(device)})
		})
	}
}

// storedTypes are the types of keys and values: three that every device has, and Q8_0 where the
// device has it.
func storedTypes(d gpu.Device) []gpu.DType {
	types := []gpu.DType{gpu.F32, gpu.F16, gpu.BF16}
	if KeepsQ8(d) {
		types = append(types, gpu.Q8_0)
	}
	return types
}

// KeepsQ8 says whether a device keeps keys and values in Q8_0.
func KeepsQ8(d gpu.Device) bool {
	_, err := d.AllocKV(gpu.KVShape{Layers: 1, Pages: 1, PageSize: 1, KVHeads: 1, HeadDim: 32,
		DType: gpu.Q8_0})
	return err == nil
}

// both runs f on the device and on the twin.
func (p *pair) both(f func(d gpu.Device) []float32) (got, want []float32) {
	p.Helper()
	return f(p.device), f(p.twin)
}

// same compares what f gives on both.
func (p *pair) same(what string, f func(d gpu.Device) []float32) {
	p.Helper()
	got, want := p.both(f)
	p.compare(what, got, want)
}

func (p *pair) compare(what string, got, want []float32) {
	p.Helper()
	if len(got) != len(want) {
		p.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	if p.unit() > 0 {
		if i, ok := p.closeEnough(got, want); !ok {
			p.Fatalf("%s: value %d of %d is %v, want %v: beyond what %v explains", what, i,
				len(want), got[i], want[i], p.device.(rounded).Precision())
		}
		return
	}
	for i := range want {
		if equal(got[i], want[i]) {
			continue
		}
		if p.exact || !near(got[i], want[i]) {
			p.Fatalf("%s: value %d of %d is %v (%08x), want %v (%08x)", what, i, len(want),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// equal means the same bits, or both NaN.
func equal(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || (a != a && b != b)
}

func near(a, b float32) bool {
	return math.Abs(float64(a-b)) <= tolerance*max(1, math.Abs(float64(b)))
}

// must stops the test on an error.
func (p *pair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// values are random numbers around zero.
func (p *pair) values(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(p.random.NormFloat64())
	}
	p.round(x)
	return x
}

// buffer is device memory with these values.
func (p *pair) buffer(d gpu.Device, values []float32) gpu.Buffer {
	p.Helper()
	b, err := d.Alloc(len(values))
	p.must(err)
	p.must(d.Write(b, values))
	return b
}

// read gives all of a buffer.
func (p *pair) read(d gpu.Device, b gpu.Buffer) []float32 {
	p.Helper()
	out := make([]float32, b.Elements())
	p.must(d.Read(out, b, 0))
	return out
}

// tensor is a random weight, at an address that need not be aligned.
func (p *pair) tensor(d gpu.DType, rows, cols int) gpu.Tensor {
	length, bytes := d.Block()
	n := rows * cols / length
	data := make([]byte, n*bytes+1)[1:]
	for i := range n {
		p.block(d, data[i*bytes:][:bytes])
	}
	return gpu.Tensor{Rows: rows, Cols: cols, DType: d, Data: data}
}

// block writes one random stored block.
func (p *pair) block(d gpu.DType, to []byte) {
	x := float32(p.random.NormFloat64() / 4)
	switch d {
	case gpu.F32:
		binary.LittleEndian.PutUint32(to, math.Float32bits(x))
	case gpu.BF16:
		binary.LittleEndian.PutUint16(to, uint16(math.Float32bits(x)>>16))
	case gpu.F16:
		binary.LittleEndian.PutUint16(to, p.half())
	default:
		for i := range to {
			to[i] = byte(p.random.Uint32())
		}
		at, scales := 0, 1
		switch d {
		case gpu.Q4_1, gpu.Q5_1, gpu.Q4_K, gpu.Q5_K:
			scales = 2
		case gpu.Q6_K:
			at = len(to) - 2
		}
		for range scales {
			binary.LittleEndian.PutUint16(to[at:], p.half())
			at += 2
		}
	}
}

// half is an f16 with an exponent of about -8 to 0, any mantissa and sign; some are subnormal.
func (p *pair) half() uint16 {
	h := uint16(p.random.UintN(1<<11))<<5>>5 | uint16(p.random.UintN(9)+7)<<10
	if p.random.UintN(16) == 0 {
		h &= 1023
	}
	return h | uint16(p.random.UintN(2))<<15
}

// cols is a random number of columns near n that a type can have.
func cols(d gpu.DType, n int) int {
	length, _ := d.Block()
	return (n + length - 1) / length * length
}

// pack is the weight on a device.
func (p *pair) pack(d gpu.Device, parts ...gpu.Tensor) gpu.Matrix {
	p.Helper()
	m, err := d.Pack(parts...)
	p.must(err)
	return m
}

// between gives a random integer in [low, high].
func (p *pair) between(low, high int) int { return low + p.random.IntN(high-low+1) }
