package cpu

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestStore: what a store gives is zeroed, aligned, apart from all else, and as long as was asked
// for; what it asks the system for is at most twice that and a slab.
func TestStore(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var s store
	var all []*memory
	given, asked := 0, map[*memory]int{}
	for range 60 {
		size := random.IntN(3 << 20)
		if random.IntN(8) == 0 {
			size = random.IntN(24 << 20)
		}
		m := s.take(size)
		given += size
		if len(m.bytes) != size || size > 0 && uintptr(unsafe.Pointer(&m.bytes[0]))%64 != 0 {
			t.Fatalf("seed %d: %d bytes for %d", seed, len(m.bytes), size)
		}
		from := m.slab
		if from == nil {
			from = m
		}
		asked[from] = len(from.bytes)
		if size > 0 && (m.bytes[0] != 0 || m.bytes[size-1] != 0) {
			t.Fatalf("seed %d: it is not zero", seed)
		}
		for _, i := range []int{0, size / 2, size - 1} {
			if size > 0 {
				m.bytes[i] = byte(1 + len(all))
			}
		}
		all = append(all, m)
	}
	for n, m := range all {
		for _, i := range []int{0, len(m.bytes) / 2, len(m.bytes) - 1} {
			if len(m.bytes) > 0 && m.bytes[i] != byte(1+n) {
				t.Fatalf("seed %d: memory %d is shared", seed, n)
			}
		}
	}
	total := 0
	for _, n := range asked {
		total += n
	}
	if total > 2*given+maxSlab {
		t.Errorf("seed %d: %d bytes asked for %d", seed, total, given)
	}
}
