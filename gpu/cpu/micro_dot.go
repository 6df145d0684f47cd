package cpu

import "unsafe"

// dotMicro are inner loops on weights and activations in bfloat16, for a processor that multiplies
// pairs of them. A step of their tiles is a pair of k: weights lie in panels [pairs][panelRows][2],
// a row of activations is [pairs][2]. The first of a pair is the upper half of its four bytes,
// because the instruction begins with that one. Where the number of columns is odd, 0 · -0 follows,
// which leaves every sum as it is. The b of a tile is one stretch, and its ldb is not read.
type dotMicro struct {
	tiles, pairs [tileRows + 1]tileKernel
	wide         tileKernel
	round        func(*pairCall)
}

// pairCall asks for n activations as pairs. asm/dots.go knows the offsets of the fields.
type pairCall struct {
	n        int
	from, to unsafe.Pointer
}

// padWeight is the second weight of a pair that has but one k.
const padWeight = 0x8000

// roundPairsGo rounds activations to pairs of bfloat16.
func roundPairsGo(c *pairCall) {
	from := unsafe.Slice((*float32)(c.from), c.n)
	to := unsafe.Slice((*uint32)(c.to), (c.n+1)/2)
	clear(to)
	for k, x := range from {
		to[k/2] |= uint32(floatToBfloat(x)) << (16 - 16*(k%2))
	}
}

// take lets a set use them.
func (m *micro) take(d *dotMicro) {
	m.tiles[kindPairs], m.pairs[kindPairs], m.wide[kindPairs] = d.tiles, d.pairs, d.wide
	m.tiles.complete(m.tall)
	m.pairs.complete(m.tall)
	m.roundPairs = d.round
}
