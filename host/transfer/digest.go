package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// digest identifies the keys and values of a transfer: both ends add one leaf a data frame, and
// the sum does not depend on the order in which frames came. A leaf is the SHA-256 of where the
// frame's slots belong and of a checksum of their bytes, taken with another polynomial than the
// frame's own, so that an error must fool both. Sums are of four 64-bit lanes, each modulo 2^64.
type digest [4]uint64

// digestSize is the bytes of a digest on the wire.
const digestSize = 32

// leafOf is the leaf of a data frame: its place and its keys and values.
func leafOf(p place, kv []byte) digest {
	var text [24]byte
	binary.LittleEndian.PutUint16(text[0:], uint16(p.model))
	binary.LittleEndian.PutUint16(text[2:], uint16(p.layer))
	binary.LittleEndian.PutUint32(text[4:], uint32(p.position))
	binary.LittleEndian.PutUint32(text[8:], uint32(p.count))
	binary.LittleEndian.PutUint32(text[12:], crc32.ChecksumIEEE(kv))
	binary.LittleEndian.PutUint64(text[16:], uint64(len(kv)))
	return readDigest(sha256Of(text[:]))
}

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
