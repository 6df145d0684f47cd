package transfer

import (
	"crypto/sha256"
	"encoding/binary"
)

// digest identifies the keys and values of a transfer: both ends add one leaf a data frame, and
// the sum does not depend on the order in which frames came. Sums are of four 64-bit lanes, each
// modulo 2^64.
type digest [4]uint64

// digestSize is the bytes of a digest on the wire.
const digestSize = 32

// leafOf is the leaf of a data frame: the SHA-256 of its head, which holds the place of its keys
// and values and their checksum. So the bytes themselves are gone over once.
func leafOf(head []byte) digest { return readDigest(sha256Of(head[:dataHead])) }

func sha256Of(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

// add is the sum of two digests.
func (d digest) add(leaf digest) digest {
	for i := range d {
		d[i] += leaf[i]
	}
	return d
}

func (d digest) append(dst []byte) []byte {
	for _, lane := range d {
		dst = binary.LittleEndian.AppendUint64(dst, lane)
	}
	return dst
}

func readDigest(src []byte) (d digest) {
	for i := range d {
		d[i] = binary.LittleEndian.Uint64(src[8*i:])
	}
	return d
}
