package tokenizer

import "math/bits"

// noMerge is the rank of two symbols that do not merge; every real rank is lower.
const noMerge = ^uint32(0)

// merge says that left and right become id; rank is its place in the list of merges.
type merge struct {
	left, right, id int32
	rank            uint32
}

// pairTable finds what two neighbouring symbols merge into. It is a hash table with linear
// probing at most half full: the lookup is the inner loop of encoding, and a Go map takes
// several times as long.
type pairTable struct {
	slots []pairSlot
	shift uint
	used  int
}

type pairSlot struct {
	key  uint64 // pairKey of the two symbols; 0 is an empty slot
	rank uint32
	id   int32
}

// pairKey is never 0, because token IDs are below 2^31.
func pairKey(left, right int32) uint64 { return (uint64(left)<<32 | uint64(right)) + 1 }

func newPairTable(entries int) *pairTable {
	size := max(bits.Len(uint(2*entries)), 4)
	return &pairTable{slots: make([]pairSlot, 1<<size), shift: uint(64 - size)}
}

func (t *pairTable) slot(key uint64) *pairSlot {
	const golden = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio, made odd
	mask := uint64(len(t.slots) - 1)
	for i := key * golden >> t.shift; ; i++ {
		s := &t.slots[i&mask]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// put adds a pair. Of two equal pairs the later one counts, as in the reference.
func (t *pairTable) put(m merge) {
	key := pairKey(m.left, m.right)
	s := t.slot(key)
	if s.key == 0 {
		t.used++
	}
	*s = pairSlot{key: key, rank: m.rank, id: m.id}
	if 2*t.used > len(t.slots) {
		t.grow()
	}
}

func (t *pairTable) grow() {
	bigger := newPairTable(t.used)
	for _, s := range t.slots {
		if s.key != 0 {
			*bigger.slot(s.key) = s
		}
	}
	bigger.used = t.used
	*t = *bigger
}

func (t *pairTable) find(left, right int32) (rank uint32, id int32) {
	key := pairKey(left, right)
	if s := t.slot(key); s.key == key {
		return s.rank, s.id
	}
	return noMerge, 0
}

func (t *pairTable) has(left, right int32) bool {
	key := pairKey(left, right)
	return t.slot(key).key == key
}
