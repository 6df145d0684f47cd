// Package quant turns numbers into the quantised types of weights and back. It is for converting
// files; devices compute with the stored blocks themselves.
//
// The layouts are those of the ggml project's blocks, as gpu.DType names them: all integers
// little-endian, scales IEEE binary16.
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// Blocks is how many numbers a quantised row must be a multiple of.
func Blocks(to gpu.DType) int {
	length, _ := to.Block()
	return length
}

// Quantise appends the blocks of a row to dst. len(row) is a multiple of Blocks(to); to is Q8_0,
// Q4_0 or Q4_K. A number that is not finite is an error: it would spoil its whole block.
func Quantise(dst []byte, to gpu.DType, row []float32) ([]byte, error) {
	for i, x := range row {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("number %d of a row is %v, which no quantised type holds", i, x)
		}
	}
	write := map[gpu.DType]func([]byte, []float32) []byte{
		gpu.Q8_0: appendQ80, gpu.Q4_0: appendQ40, gpu.Q4_K: appendQ4K,
	}[to]
	length := Blocks(to)
	if write == nil || len(row)%length != 0 {
		return nil, fmt.Errorf("%d numbers cannot be written as %v", len(row), to)
	}
	for ; len(row) > 0; row = row[length:] {
		dst = write(dst, row[:length])
	}
	return dst, nil
}

// half is a scale as it is stored, and its value.
func half(x float32) (uint16, float32) {
	bits := safetensors.ToHalf(x)
	return bits, safetensors.Half(bits)
}

// appendQ80: scale·q with q in [-127, 127], the largest magnitude at 127.
func appendQ80(dst []byte, x []float32) []byte {
	most := float32(0)
	for _, v := range x {
		most = max(most, abs(v))
	}
	scale := most / 127
	bits, _ := half(scale)
	dst = binary.LittleEndian.AppendUint16(dst, bits)
	for _, v := range x {
		dst = append(dst, byte(int8(math.Round(float64(v*inverse(scale))))))
	}
	return dst
}

// appendQ40: scale·(q-8) with q in [0, 15], the number of the largest magnitude at q = 0.
func appendQ40(dst []byte, x []float32) []byte {
	extreme := float32(0)
	for _, v := range x {
		if abs(v) > abs(extreme) {
			extreme = v
		}
	}
	scale := extreme / -8
	bits, _ := half(scale)
	dst = binary.LittleEndian.AppendUint16(dst, bits)
	q := func(v float32) byte { return byte(min(15, int(v*inverse(scale)+8.5))) }
	for i := range 16 {
		dst = append(dst, q(x[i])|q(x[i+16])<<4)
	}
	return dst
}

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }

// inverse is 1/x, and 0 for 0.
func inverse(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}
