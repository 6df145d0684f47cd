package cpu_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// quantISAs are the instruction sets with kernels of their own for quantised weights.
var quantISAs = []cpu.ISA{cpu.AVX512, cpu.AVXVNNI, cpu.AVX2, cpu.Go}

// TestQuantisedExtremes: sums of the largest integers there are fit where kernels keep them, of all
// signs that the activations may have, in tiles and in the kernels for a few rows.
func TestQuantisedExtremes(t *testing.T) {
	const cols, outputs = 3 * 256, 37
	twin := cpu.NewTwin(cpu.NumericsInt8)
	check := func(t *testing.T, d gpu.Device, w gpu.Tensor, rows int) {
		x := signs(rows * cols)
		got, want := product(t, d, w, x), product(t, twin, w, x)
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s of bytes %02x, %d rows: output %d is %v, want %v",
					w.DType, w.Data[8], rows, i, got[i], want[i])
			}
		}
	}
	for _, isa := range quantISAs {
		t.Run(string(isa), func(t *testing.T) {
			d := open(t, cpu.Options{Threads: 1, ISA: isa})
			defer d.Close()
			for dtype := gpu.Q8_0; dtype < gpu.DTypes; dtype++ {
				for _, fill := range []byte{0xff, 0x7f, 0x80, 0x00} {
					w := extremes(dtype, outputs, cols, fill)
					for _, rows := range []int{1, 2, 3, 4, 5, 40, 41} {
						check(t, d, w, rows)
					}
				}
			}
		})
	}
}

// extremes is a weight whose blocks are one byte over and over, and scales.
func extremes(dtype gpu.DType, rows, cols int, fill byte) gpu.Tensor {
	length, bytes := dtype.Block()
	data := make([]byte, rows*cols/length*bytes)
	for i := range data {
		data[i] = fill
	}
	for at := 0; at < len(data); at += bytes {
		scale := data[at:]
		if dtype == gpu.Q6_K {
			scale = data[at+bytes-2:]
		}
		binary.LittleEndian.PutUint16(scale, 0x3c00) // 1
		switch dtype {
		case gpu.Q4_1, gpu.Q5_1, gpu.Q4_K, gpu.Q5_K:
			binary.LittleEndian.PutUint16(scale[2:], 0x3800) // 0.5
		}
	}
	return gpu.Tensor{Rows: rows, Cols: cols, DType: dtype, Data: data}
}

// signs are activations that become 127 and -127: first all of one sign, then all of the other,
// then in turn, of neighbours and of blocks.
func signs(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		block, negative := i/32, false
		switch block % 5 {
		case 1:
			negative = true
		case 2:
			negative = i%2 == 1
		case 3:
			negative = i/4%2 == 1
		case 4:
			negative = i/8%2 == 1
		}
		x[i] = 3
		if negative {
			x[i] = -3
		}
	}
	return x
}
