package quant

import (
	"encoding/binary"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// Dequantise appends the numbers of whole blocks to dst. from is a quantised type.
func Dequantise(dst []float32, from gpu.DType, blocks []byte) []float32 {
	_, bytes := from.Block()
	for ; len(blocks) >= bytes; blocks = blocks[bytes:] {
		dst = appendBlock(dst, from, blocks[:bytes])
	}
	return dst
}

func appendBlock(dst []float32, from gpu.DType, b []byte) []float32 {
	at := func(i int) float32 { return safetensors.Half(binary.LittleEndian.Uint16(b[i:])) }
	switch from {
	case gpu.Q8_0:
		for _, q := range b[2:] {
			dst = append(dst, at(0)*float32(int8(q)))
		}
	case gpu.Q4_0:
		return appendWhole(dst, b[2:], nil, affine{scale: at(0), shift: -8})
	case gpu.Q4_1:
		return appendWhole(dst, b[4:], nil, affine{scale: at(0), least: at(2), raised: true})
	case gpu.Q5_0:
		return appendWhole(dst, b[6:], b[2:6], affine{scale: at(0), shift: -16})
	case gpu.Q5_1:
		return appendWhole(dst, b[8:], b[4:8], affine{scale: at(0), least: at(2), raised: true})
	case gpu.Q4_K:
		return appendSuper(dst, b[4:16], b[16:], nil, [2]float32{at(0), at(2)})
	case gpu.Q5_K:
		return appendSuper(dst, b[4:16], b[48:], b[16:48], [2]float32{at(0), at(2)})
	case gpu.Q6_K:
		return appendQ6K(dst, b, at(208))
	}
	return dst
}

// affine is scale·(q + shift), or with a least value scale·q + least.
type affine struct {
	scale  float32
	shift  int
	least  float32
	raised bool // there is a least value; adding none would turn a negative zero around
}

func (a affine) of(q int) float32 {
	x := a.scale * float32(q+a.shift)
	if a.raised {
		return float32(x) + a.least
	}
	return x
}

// appendWhole writes 32 numbers: the lower halves of 16 bytes, then the upper ones, with a fifth
// bit of each from the word high where there is one.
func appendWhole(dst []float32, low, high []byte, a affine) []float32 {
	word := uint32(0)
	if high != nil {
		word = binary.LittleEndian.Uint32(high)
	}
	for i := range 32 {
		q := int(low[i%16] >> (i / 16 * 4) & 15)
		dst = append(dst, a.of(q|int(word>>i&1)<<4))
	}
	return dst
}

// appendSuper writes 256 numbers of Q4_K, or with a fifth bit of Q5_K.
func appendSuper(dst []float32, packed, low, high []byte, units [2]float32) []float32 {
	for i := range superLength {
		sub := i / subLength
		scale, least := packed[sub%4]&maxSix, packed[sub%4+4]&maxSix
		if sub >= 4 {
			scale = packed[sub+4]&15 | packed[sub-4]>>6<<4
			least = packed[sub+4]>>4 | packed[sub]>>6<<4
		}
		q := low[i/64*32+i%32] >> (i / 32 % 2 * 4) & 15
		if high != nil {
			q |= high[i%32] >> sub & 1 << 4
		}
		dst = append(dst, float32(units[0]*float32(scale)*float32(q))-units[1]*float32(least))
	}
	return dst
}

// appendQ6K writes 256 numbers: four lower bits, two upper ones, a signed scale for 16 of them.
func appendQ6K(dst []float32, b []byte, unit float32) []float32 {
	for i := range superLength {
		half, in := i/128, i%128
		q := int(b[64*half+in%64]>>(in/64*4)&15 | b[128+32*half+in%32]>>(in/32*2)&3<<4)
		scale := unit * float32(int8(b[192+i/16]))
		dst = append(dst, scale*float32(q-32))
	}
	return dst
}
