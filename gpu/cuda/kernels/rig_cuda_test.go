//go:build cuda

package kernels_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// rig is a device with all kernels loaded, and a random source whose seed is printed. Memory of a
// test is given back when it ends.
type rig struct {
	*testing.T
	*driver.Driver
	info      driver.Info
	stream    driver.Stream
	functions []driver.Function
	random    *rand.Rand
	staging   []byte
}

const stagingBytes = 16 << 20

// open gives a rig, or skips the test where there is no driver.
func open(t *testing.T) *rig {
	t.Helper()
	d, err := cuda.OpenDriver(0)
	if errors.Is(err, driver.ErrNoDevice) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	r := &rig{T: t, Driver: d}
	r.info, err = d.Open()
	r.must(err)
	seed := rand.Uint64()
	t.Logf("%s, seed %d", r.info.Name, seed)
	r.random = rand.New(rand.NewPCG(seed, 0))
	r.stream, err = d.NewStream()
	r.must(err)
	module, err := d.Load(r.image())
	r.must(err)
	for _, k := range kernels.Table() {
		f, err := d.Function(module, k.Name)
		r.must(err)
		r.functions = append(r.functions, f)
	}
	r.limit(r.info.SharedPerBlock)
	r.staging, err = d.AllocHost(stagingBytes)
	r.must(err)
	t.Cleanup(func() {
		err := errors.Join(d.FreeHost(r.staging), d.Unload(module), d.FreeStream(r.stream),
			d.Close())
		if err != nil && !t.Failed() {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
	return r
}

// image is the code of the kernels: their PTX, or what the file that ENGINE_CUDA_IMAGE names has,
// such as a cubin that the vendor's assembler made of it.
func (r *rig) image() []byte {
	r.Helper()
	file := os.Getenv("ENGINE_CUDA_IMAGE")
	if file == "" {
		return []byte(kernels.PTX())
	}
	image, err := os.ReadFile(file)
	r.must(err)
	return image
}

// limit lets no block have more than so many bytes of shared memory: the driver refuses a launch
// that asks for more, 48 KiB apart, which need no asking.
func (r *rig) limit(bytes int) {
	r.Helper()
	r.info.SharedPerBlock = bytes
	for i, k := range kernels.Table() {
		if k.Shared > 0 {
			r.must(r.SetShared(r.functions[i], min(k.Shared, bytes)))
		}
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// alloc gives memory with anything in it: NaNs, on the emulated device.
func (r *rig) alloc(bytes int) driver.Pointer {
	r.Helper()
	p, err := r.Alloc(int64(max(bytes, 1)))
	r.must(err)
	return p
}

// up copies bytes to new memory.
func (r *rig) up(data []byte) driver.Pointer {
	r.Helper()
	p := r.alloc(len(data))
	for at := 0; at < len(data); at += stagingBytes {
		n := copy(r.staging, data[at:])
		r.must(r.CopyIn(p+driver.Pointer(at), r.staging[:n], r.stream))
		r.must(r.Finish(r.stream))
	}
	return p
}

func (r *rig) down(p driver.Pointer, bytes int) []byte {
	r.Helper()
	data := make([]byte, bytes)
	for at := 0; at < bytes; at += stagingBytes {
		n := min(stagingBytes, bytes-at)
		r.must(r.CopyOut(r.staging[:n], p+driver.Pointer(at), r.stream))
		r.must(r.Finish(r.stream))
		copy(data[at:], r.staging[:n])
	}
	return data
}

// run starts launches one after another and waits for them.
func (r *rig) run(list ...kernels.Launch) {
	r.Helper()
	r.must(r.start(list...))
	r.must(r.Finish(r.stream))
}

func (r *rig) start(list ...kernels.Launch) error {
	for i := range list {
		l := &list[i]
		err := r.Launch(r.stream, driver.Launch{Function: r.functions[l.Kernel], Grid: l.Grid,
			Block: l.Block, Shared: l.Shared, Params: l.Args()})
		if err != nil {
			return fmt.Errorf("%s: %w", kernels.Table()[l.Kernel].Name, err)
		}
	}
	return nil
}

// types are the types of activations, with the error that a row of results may have, relative to
// its length.
var types = []struct {
	gpu.DType
	tolerance float64
}{{gpu.F32, 2e-6}, {gpu.F16, 1e-3}, {gpu.BF16, 5e-3}}

// encode stores numbers, rounded to the nearest.
func encode(d gpu.DType, values []float64) []byte {
	data := make([]byte, 0, len(values)*d.Bytes())
	for _, v := range values {
		u := math.Float32bits(float32(v))
		switch d {
		case gpu.F32:
			data = binary.LittleEndian.AppendUint32(data, u)
		case gpu.BF16:
			data = binary.LittleEndian.AppendUint16(data, uint16((u+0x7fff+u>>16&1)>>16))
		default:
			data = binary.LittleEndian.AppendUint16(data, half(v))
		}
	}
	return data
}

// half rounds to IEEE binary16: NaNs, infinities, and numbers below its largest.
func half(v float64) uint16 {
	if math.IsNaN(v) {
		return 0x7e00
	}
	sign := uint16(math.Float64bits(v)>>48) & 0x8000
	if math.IsInf(v, 0) {
		return sign | 0x7c00
	}
	_, exponent := math.Frexp(v)
	step := math.Ldexp(1, max(exponent-11, -24))
	v = math.Abs(math.RoundToEven(v/step) * step)
	if v < math.Ldexp(1, -14) {
		return sign | uint16(v*(1<<24))
	}
	fraction, exponent := math.Frexp(v)
	return sign | uint16(exponent+14)<<10 | uint16(fraction*2048)&1023
}

func decode(d gpu.DType, data []byte) []float64 {
	values := make([]float64, len(data)/d.Bytes())
	for i := range values {
		switch d {
		case gpu.F32:
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
		case gpu.BF16:
			u := uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16
			values[i] = float64(math.Float32frombits(u))
		default:
			values[i] = unhalf(binary.LittleEndian.Uint16(data[2*i:]))
		}
	}
	return values
}

func unhalf(h uint16) float64 {
	exponent, fraction := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(fraction, -24)
	switch {
	case exponent == 31:
		v = math.Inf(1)
		if fraction != 0 {
			v = math.NaN()
		}
	case exponent > 0:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if h&0x8000 != 0 {
		return -v
	}
	return v
}

// numbers are n random ones, as a type stores them.
func (r *rig) numbers(d gpu.DType, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = r.random.NormFloat64()
	}
	return decode(d, encode(d, values))
}

func (r *rig) upNumbers(d gpu.DType, values []float64) driver.Pointer {
	r.Helper()
	return r.up(encode(d, values))
}

func (r *rig) upInts(values []int32) driver.Pointer {
	r.Helper()
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return r.up(data)
}

func (r *rig) downNumbers(d gpu.DType, p driver.Pointer, n int) []float64 {
	r.Helper()
	return decode(d, r.down(p, n*d.Bytes()))
}

// least is the smallest step between numbers of binary16: what results may be off by anyway.
const least = 1. / (1 << 24)

// close compares rows of results: the difference's length to the row's, and each number to the
// larger of itself and the row's mean. NaNs are never close.
func (r *rig) close(what string, got, want []float64, width int, tolerance float64) {
	r.Helper()
	if len(got) != len(want) {
		r.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for row := 0; row < len(want); row += width {
		var square, off float64
		for i := row; i < row+width; i++ {
			square += want[i] * want[i]
			off += (got[i] - want[i]) * (got[i] - want[i])
		}
		mean := math.Sqrt(square / float64(width))
		if !(math.Sqrt(off/float64(width)) <= tolerance*mean+least) {
			r.Fatalf("%s: row %d is %.2g off, may be %g", what, row/width,
				math.Sqrt(off/square), tolerance)
		}
		for i := row; i < row+width; i++ {
			bound := 2 * tolerance * max(math.Abs(want[i]), mean)
			if !(math.Abs(got[i]-want[i]) <= bound+least) {
				r.Fatalf("%s: row %d: number %d of %d is %g, want %g", what, row/width, i-row,
					width, got[i], want[i])
			}
		}
	}
}

// each runs a test once for each type of activations.
func each(t *testing.T, f func(r *rig, d gpu.DType, tolerance float64)) {
	for _, d := range types {
		t.Run(d.String(), func(t *testing.T) { f(open(t), d.DType, d.tolerance) })
	}
}

// between gives a random integer in [low, high].
func (r *rig) between(low, high int) int { return low + r.random.IntN(high-low+1) }
