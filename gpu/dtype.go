package gpu

import "fmt"

// DType is how numbers are stored.
type DType uint8

// The stored types. Those from Q8_0 on are quantised: a row is cut into blocks of neighbours, each
// with scales of its own, in the byte layout of ggml and of GGUF files.
const (
	F32 DType = iota
	F16
	BF16
	Q8_0 // 8 bits, a scale for 32
	Q4_0 // 4 bits, a scale for 32
	Q4_1 // 4 bits, a scale and a least value for 32
	Q5_0 // 5 bits, a scale for 32
	Q5_1 // 5 bits, a scale and a least value for 32
	Q4_K // 4 bits, a scale and a least value for 32, in blocks of 256
	Q5_K // 5 bits, a scale and a least value for 32, in blocks of 256
	Q6_K // 6 bits, a scale for 16, in blocks of 256

	// DTypes counts them.
	DTypes
)

// layouts are name, numbers and bytes of a block, by type.
var layouts = [DTypes]struct {
	name          string
	length, bytes int
}{
	F32: {"f32", 1, 4}, F16: {"f16", 1, 2}, BF16: {"bf16", 1, 2},
	Q8_0: {"q8_0", 32, 34},
	Q4_0: {"q4_0", 32, 18}, Q4_1: {"q4_1", 32, 20},
	Q5_0: {"q5_0", 32, 22}, Q5_1: {"q5_1", 32, 24},
	Q4_K: {"q4_k", 256, 144}, Q5_K: {"q5_k", 256, 176}, Q6_K: {"q6_k", 256, 210},
}

// Quantised says whether numbers are stored in blocks that share scales.
func (d DType) Quantised() bool { return d >= Q8_0 && d < DTypes }

// Block is how many numbers a block holds and how many bytes it takes; without quantisation a block
// is one number. An unknown type has neither.
func (d DType) Block() (length, bytes int) {
	if d >= DTypes {
		return 0, 0
	}
	return layouts[d].length, layouts[d].bytes
}

// Bytes is the size of one number of a type that is not quantised.
func (d DType) Bytes() int {
	if d == F32 {
		return 4
	}
	return 2
}

// RowBytes is what a row of cols numbers takes; cols is a multiple of the block's length.
func (d DType) RowBytes(cols int) int {
	length, bytes := d.Block()
	return cols / length * bytes
}

func (d DType) String() string {
	if d >= DTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return layouts[d].name
}
