package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// TestRowsApart: products whose rows are copied apart have the bits of the twin, also when the next
// call has other numbers in the same place.
func TestRowsApart(t *testing.T) {
	const cols, outputs, most = 512, 70, 150
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	w := gpu.Tensor{Rows: outputs, Cols: cols, DType: gpu.F32}
	for _, x := range numbers(outputs * cols) {
		b := math.Float32bits(x)
		w.Data = append(w.Data, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	twin := cpu.NewTwin(cpu.NumericsFMA)
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVX2, cpu.Go} {
		t.Run(fmt.Sprint(isa), func(t *testing.T) {
			d := open(t, cpu.Options{Threads: 2, ISA: isa})
			defer d.Close()
			for _, rows := range []int{7, 8, most, most, 60} {
				x := numbers(rows * cols)
				got, want := product(t, d, w, x), product(t, twin, w, x)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("seed %d: %d rows: output %d is %v, want %v", seed, rows, i,
							got[i], want[i])
					}
				}
			}
		})
	}
}

// TestRowsApartStay: copies that are large enough to come from the system outlive a collection.
func TestRowsApartStay(t *testing.T) {
	const cols, rows = 1 << 14, 80
	d := open(t, cpu.Options{Threads: 2})
	defer d.Close()
	x := make([]float32, rows*cols)
	x[len(x)-1] = 3
	w := gpu.Tensor{Rows: 1, Cols: cols, DType: gpu.BF16, Data: make([]byte, 2*cols)}
	w.Data[2*cols-1] = 0x40 // 2, of the last column
	for range 3 {
		if got := product(t, d, w, x); got[rows-1] != 6 || got[0] != 0 {
			t.Errorf("got %v, want zeros and 6", got)
		}
		for range 3 {
			runtime.GC()
		}
	}
}

// product is x·wᵀ.
func product(t *testing.T, d gpu.Device, w gpu.Tensor, x []float32) []float32 {
	t.Helper()
	rows := len(x) / w.Cols
	m, err := d.Pack(w)
	from, errX := d.Alloc(len(x))
	to, errTo := d.Alloc(rows * w.Rows)
	if err != nil || errX != nil || errTo != nil {
		t.Fatal(err, errX, errTo)
	}
	out := make([]float32, rows*w.Rows)
	for _, err := range []error{d.Write(from, x),
		d.MatMul(gpu.MatMulArgs{Dst: to, X: from, W: m, Rows: rows}), d.Read(out, to, 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
