package cpu

import (
	"encoding/binary"

	"github.com/kvrelay/engine/gpu"
)

// quantBlock is how many numbers of a row meet one scale of the activations.
const quantBlock = 32

// superLength is the length of the longest block of any format.
const superLength = 256

// quantKind says how the integers of a block become numbers, and so which kernels compute with it.
type quantKind uint8

const (
	kindByte  quantKind = iota // scale·(q - 128), a scale for 32 numbers
	kindWhole                  // scale·(q - offset), q below 32, a scale for 32 numbers
	kindLeast                  // scale·q + least, q below 32, both for 32 numbers
	kindHalf                   // scale·(q - offset), q below 64, a scale for 16 numbers
	quantKinds
)

// format is a quantised type: q are unsigned integers of so many bits.
type format struct {
	kind   quantKind
	bits   int
	offset int
}

// formats by gpu.DType; an entry without bits is not quantised.
var formats = [gpu.DTypes]format{
	gpu.Q8_0: {kindByte, 8, 128},
	gpu.Q4_0: {kindWhole, 4, 8},
	gpu.Q4_1: {kindLeast, 4, 0},
	gpu.Q5_0: {kindWhole, 5, 16},
	gpu.Q5_1: {kindLeast, 5, 0},
	gpu.Q4_K: {kindLeast, 4, 0},
	gpu.Q5_K: {kindLeast, 5, 0},
	gpu.Q6_K: {kindHalf, 6, 32},
}

// super is one stored block taken apart; blocks of 32 numbers use the first of each field.
type super struct {
	q     [superLength]uint8
	d, m  uint16    // f16: the scale, and the least value or the scale of the least values
	scale [16]uint8 // of 32 numbers each; in Q6_K int8, of 16 numbers each
	least [8]uint8  // of 32 numbers each
}

// scaleAt is the scale of numbers [16i, 16i+16). The products are exact in float32.
func (s *super) scaleAt(dtype gpu.DType, i int) float32 {
	switch dtype {
	case gpu.Q4_K, gpu.Q5_K:
		return halfToFloat(s.d) * float32(s.scale[i/2])
	case gpu.Q6_K:
		return halfToFloat(s.d) * float32(int8(s.scale[i]))
	}
	return halfToFloat(s.d)
}

// leastAt is what is added to numbers [32i, 32i+32). The products are exact in float32.
func (s *super) leastAt(dtype gpu.DType, i int) float32 {
	switch dtype {
	case gpu.Q4_1, gpu.Q5_1:
		return halfToFloat(s.m)
	case gpu.Q4_K, gpu.Q5_K:
		return -(halfToFloat(s.m) * float32(s.least[i]))
	}
	return 0
}

// number is the value of number i. The sum's product is exact, so fusing it changes nothing.
func (s *super) number(dtype gpu.DType, i int) float32 {
	f, scale := formats[dtype], s.scaleAt(dtype, i/16)
	x := float32(scale * float32(int(s.q[i])-f.offset))
	if f.kind == kindLeast {
		x += s.leastAt(dtype, i/32)
	}
	return x
}

// takeApart reads one stored block of a quantised type.
func (s *super) takeApart(dtype gpu.DType, data []byte) {
	s.d = binary.LittleEndian.Uint16(data)
	switch dtype {
	case gpu.Q8_0:
		for i, b := range data[2:34] {
			s.q[i] = b + 128
		}
	case gpu.Q4_0:
		nibbles(s.q[:], data[2:18])
	case gpu.Q4_1:
		s.m = binary.LittleEndian.Uint16(data[2:])
		nibbles(s.q[:], data[4:20])
	case gpu.Q5_0:
		nibbles(s.q[:], data[6:22])
		fifthBits(s.q[:], data[2:])
	case gpu.Q5_1:
		s.m = binary.LittleEndian.Uint16(data[2:])
		nibbles(s.q[:], data[8:24])
		fifthBits(s.q[:], data[4:])
	case gpu.Q4_K:
		s.sixBitScales(data)
		for i := range 4 {
			nibbles(s.q[64*i:], data[16+32*i:][:32])
		}
	case gpu.Q5_K:
		s.sixBitScales(data)
		high := data[16:48]
		for i := range 4 {
			nibbles(s.q[64*i:], data[48+32*i:][:32])
		}
		for i := range s.q {
			s.q[i] |= high[i%32] >> (i / 32) & 1 << 4
		}
	case gpu.Q6_K:
		s.d = binary.LittleEndian.Uint16(data[208:])
		copy(s.scale[:], data[192:208])
		for i := range s.q {
			half, in := i/128, i%128
			low := data[64*half+in%64] >> (in / 64 * 4) & 15
			high := data[128+32*half+in%32] >> (in / 32 * 2) & 3
			s.q[i] = low | high<<4
		}
	}
}

// nibbles spreads the lower halves of the bytes over the first numbers, the upper ones over as many
// behind them.
func nibbles(q []uint8, data []byte) {
	for i, b := range data {
		q[i], q[i+len(data)] = b&15, b>>4
	}
}

// fifthBits adds bit i of a word to number i.
func fifthBits(q []uint8, data []byte) {
	word := binary.LittleEndian.Uint32(data)
	for i := range 32 {
		q[i] |= uint8(word>>i&1) << 4
	}
}

// sixBitScales reads the head of a block of Q4_K or Q5_K: two halves, then eight scales and eight
// least values of six bits in twelve bytes, the upper bits of the last four of each beside the
// first four.
func (s *super) sixBitScales(data []byte) {
	s.m = binary.LittleEndian.Uint16(data[2:])
	packed := data[4:16]
	for i := range 4 {
		s.scale[i], s.least[i] = packed[i]&63, packed[i+4]&63
		s.scale[i+4] = packed[i+8]&15 | packed[i]>>6<<4
		s.least[i+4] = packed[i+8]>>4 | packed[i+4]>>6<<4
	}
}
