package cpu

import (
	"fmt"

	"github.com/kvrelay/engine/gpu"
)

// Every device refuses the same arguments, in the same words. What follows is for the others.

// CheckEmbed refuses unknown tokens and what does not fit.
func CheckEmbed(dst gpu.Buffer, table gpu.Matrix, tokens []int32) error {
	return checkEmbed(dst, table, tokens)
}

// CheckNorm refuses what does not fit, and fills the zero values that stand for defaults.
func CheckNorm(a gpu.NormArgs) (gpu.NormArgs, error) { return normalised(a) }

// CheckMatMul refuses what does not fit, and a bias together with accumulation.
func CheckMatMul(a gpu.MatMulArgs) error { return checkMatMul(a) }

// CheckPack refuses tensors whose bytes are not those of their shape.
func CheckPack(parts []gpu.Tensor) error { return checkPack(parts) }

// CheckRope refuses positions and slots outside the pool, and what does not fit.
func CheckRope(a gpu.RopeArgs, shape gpu.KVShape) error { return checkRope(a, shape) }

// CheckAttention refuses pages outside the pool, and gone ones in sight.
func CheckAttention(a gpu.AttentionArgs, shape gpu.KVShape) error {
	return checkAttention(a, shape)
}

// CheckGLU refuses unknown activations and what does not fit.
func CheckGLU(a gpu.GLUArgs) error { return checkGLU(a) }

// CheckGather refuses rows outside the source.
func CheckGather(dst, src gpu.Buffer, rows []int32, width int) error {
	return checkGather(dst, src, rows, width)
}

// CheckAddRows refuses rows that do not ascend.
func CheckAddRows(a gpu.AddRowsArgs) error { return checkAddRows(a) }

// CheckCopies refuses pages outside the pool.
func CheckCopies(shape gpu.KVShape, copies []gpu.KVCopy) error { return checkCopies(shape, copies) }

// CheckRange refuses slots outside a page, and data of another size.
func CheckRange(shape gpu.KVShape, r gpu.KVRange, data []byte) error {
	return checkRange(shape, r, data)
}

// Widen appends a row of stored numbers, quantised ones included, as float32: what each stands for,
// exactly.
func Widen(dst []float32, dtype gpu.DType, cols int, row []byte) ([]float32, error) {
	length, _ := dtype.Block()
	if length == 0 || cols%length != 0 || len(row) != dtype.RowBytes(cols) {
		return dst, fmt.Errorf("%d bytes for a row of %d %v", len(row), cols, dtype)
	}
	m := twinMatrix{cols: cols, data: dst}
	m.add(dtype, row)
	return m.data, nil
}

// Half and Bfloat round to the nearest, ties to even.
func Half(x float32) uint16   { return floatToHalf(x) }
func Bfloat(x float32) uint16 { return floatToBfloat(x) }

// FromHalf and FromBfloat widen exactly.
func FromHalf(h uint16) float32   { return halfToFloat(h) }
func FromBfloat(b uint16) float32 { return bfloatToFloat(b) }
