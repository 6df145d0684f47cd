package gpu

import "fmt"

// DType is how a number is stored.
type DType uint8

// The stored types.
const (
	F32 DType = iota
	F16
	BF16
)

// Bytes is the size of one element.
func (d DType) Bytes() int {
	if d == F32 {
		return 4
	}
	return 2
}

func (d DType) String() string {
	switch d {
	case F32:
		return "f32"
	case F16:
		return "f16"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}
