package cpu

//go:generate go run asm/gen.go asm/rows.go

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
	"golang.org/x/sys/cpu"
)

// fastMicro is the set of this processor's vector instructions, or nil.
func fastMicro() *micro {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA || !cpu.X86.HasF16C {
		return nil
	}
	return &micro{
		name: AVX2,
		tall: 6,
		tiles: [plainTypes][tileRows + 1]tileKernel{
			gpu.F32: {nil, tileF32x1AVX2, tileF32x2AVX2, tileF32x3AVX2,
				tileF32x4AVX2, tileF32x5AVX2, tileF32x6AVX2},
			gpu.F16: {nil, tileF16x1AVX2, tileF16x2AVX2, tileF16x3AVX2,
				tileF16x4AVX2, tileF16x5AVX2, tileF16x6AVX2},
			gpu.BF16: {nil, tileBF16x1AVX2, tileBF16x2AVX2, tileBF16x3AVX2,
				tileBF16x4AVX2, tileBF16x5AVX2, tileBF16x6AVX2},
		},
		wide:          [...]tileKernel{wideF32AVX2, wideF16AVX2, wideBF16AVX2},
		sumSquares:    sumSquaresFast,
		scaleWeighted: scaleWeightedFast,
		scaleRow:      scaleRowFast,
		softmaxBlock:  softmaxBlockAVX2,
		gates: [...]func(dst, gate, up []float32){
			gpu.SiLU:     gateFast(gateSiLUAVX2, gateSiLU),
			gpu.GELUTanh: gateFast(gateGELUAVX2, gateGELU),
		},
		rotate: rotateFast,
		quant:  goQuantMicro(),
	}
}

// The fast functions give the assembly whole vectors and plain Go the rest: the bits are the same.

func sumSquaresFast(lanes *[normLanes]float64, x []float32) {
	n := len(x) &^ (normLanes - 1)
	if n > 0 {
		sumSquaresAVX2(lanes, unsafe.SliceData(x), n)
	}
	sumSquares(lanes, x[n:])
}

func scaleWeightedFast(dst, x, weight []float32, n norm) {
	whole := len(x) &^ 7
	if whole > 0 {
		f := scaleWeightedAVX2
		if n.accumulate {
			f = addWeightedAVX2
		}
		f(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(weight),
			whole, n.inverse, n.offset)
	}
	scaleWeighted(dst[whole:], x[whole:], weight[whole:], n)
}

func scaleRowFast(x []float32, f float32) {
	whole := len(x) &^ 7
	if whole > 0 {
		scaleRowAVX2(unsafe.SliceData(x), whole, f)
	}
	scaleRow(x[whole:], f)
}

func gateFast(
	vector func(dst, gate, up *float32, n int), rest func(dst, gate, up []float32),
) func(dst, gate, up []float32) {
	return func(dst, gate, up []float32) {
		whole := len(gate) &^ 7
		if whole > 0 {
			vector(unsafe.SliceData(dst), unsafe.SliceData(gate), unsafe.SliceData(up), whole)
		}
		rest(dst[whole:], gate[whole:], up[whole:])
	}
}

func rotateFast(low, high, cos, sin []float32) {
	whole := len(low) &^ 7
	if whole > 0 {
		rotateAVX2(unsafe.SliceData(low), unsafe.SliceData(high),
			unsafe.SliceData(cos), unsafe.SliceData(sin), whole)
	}
	rotate(low[whole:], high[whole:], cos[whole:], sin[whole:])
}
