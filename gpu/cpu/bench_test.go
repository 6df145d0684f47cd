package cpu_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// BenchmarkMatMul times the products of a model of 135 million parameters, for a prompt and for a
// token.
func BenchmarkMatMul(b *testing.B) {
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVXVNNI, cpu.AVX2, cpu.Go} {
		for _, threads := range []int{1, 2} {
			for _, dtype := range []gpu.DType{gpu.F32, gpu.F16, gpu.BF16, gpu.Q8_0,
				gpu.Q4_0, gpu.Q6_K} {
				for _, s := range [][3]int{{512, 960, 576}, {512, 576, 576}, {512, 3072, 576},
					{512, 576, 1536}, {1, 3072, 576}, {4, 3072, 576}, {8, 3072, 576},
					{16, 3072, 576}} {
					o := cpu.Options{Threads: threads, ISA: isa}
					b.Run(fmt.Sprintf("%s/threads=%d/%v/%v", isa, threads, dtype, s),
						func(b *testing.B) { benchmarkMatMul(b, o, dtype, s) })
				}
			}
		}
	}
}

// benchmarkMatMul times [rows][k] · [n][k]ᵀ; shape is rows, n, k.
func benchmarkMatMul(b *testing.B, o cpu.Options, dtype gpu.DType, shape [3]int) {
	d := open(b, o)
	defer d.Close()
	rows, n, k := shape[0], shape[1], shape[2]
	data := bytes.Repeat([]byte{0x3c}, n*dtype.RowBytes(k)) // 0.0115, or 1.06 in f16
	w, err := d.Pack(gpu.Tensor{Rows: n, Cols: k, DType: dtype, Data: data})
	if err != nil {
		b.Fatal(err)
	}
	x, errX := d.Alloc(rows * k)
	dst, errDst := d.Alloc(rows * n)
	if errX != nil || errDst != nil {
		b.Fatal(errX, errDst)
	}
	ones := make([]float32, rows*k)
	for i := range ones {
		ones[i] = 1
	}
	if err := d.Write(x, ones); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.MatMul(gpu.MatMulArgs{Dst: dst, X: x, W: w, Rows: rows}); err != nil {
			b.Fatal(err)
		}
	}
	operations := 2 * float64(rows) * float64(n) * float64(k) * float64(b.N)
	b.ReportMetric(operations/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
