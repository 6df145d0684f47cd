package cpu

import (
	"runtime"
	"unsafe"
)

// hugeFrom is the size from which memory is asked for in huge pages: with small ones the misses in
// the address translation cost a quarter of the bandwidth that decoding lives on.
const hugeFrom = 4 << 20

// memory is zeroed bytes, 64-byte aligned, that go back when the last reference to it is gone.
type memory struct {
	bytes []byte
	slab  *memory // the memory that this is a part of; nil for one of its own
}

// newMemory allocates. Big pieces come from the operating system where it offers huge pages.
func newMemory(size int) *memory {
	if size >= hugeFrom {
		if mapped := mapHuge(size); mapped != nil {
			m := &memory{bytes: alignTo(mapped, hugePage)[:size]}
			runtime.AddCleanup(m, unmap, mapped)
			return m
		}
	}
	return &memory{bytes: alignTo(make([]byte, size+63), 64)[:size]}
}

// maxSlab is the most that a store asks the system for at once. It begins with hugeFrom, and asks
// for as much as it has given so far: what stays unused is no more than what is used.
const maxSlab = 32 << 20

// store hands out memory for weights. Those of a layer are often smaller than what is worth huge
// pages of its own; here they lie side by side in pieces that are.
type store struct {
	slab  *memory
	used  int // of the slab
	taken int // from all slabs
}

// take returns zeroed memory, 64-byte aligned, that keeps its slab from going.
func (s *store) take(size int) *memory {
	if s.slab == nil || len(s.slab.bytes)-s.used < size {
		next := min(max(hugeFrom, s.taken), maxSlab)
		if size > next/2 && size >= hugeFrom {
			return newMemory(size)
		}
		s.slab, s.used = newMemory(max(next, size)), 0
	}
	m := &memory{bytes: s.slab.bytes[s.used:][:size:size], slab: s.slab}
	size = (size + 63) &^ 63
	s.used, s.taken = s.used+size, s.taken+size
	return m
}

// alignTo drops the bytes before the first multiple of align, a power of two.
func alignTo(b []byte, align uintptr) []byte {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return b[-address&(align-1):]
}

// at is the address of the byte at offset.
func (m *memory) at(offset int) unsafe.Pointer { return unsafe.Pointer(&m.bytes[offset]) }

// floats views the memory as float32.
func (m *memory) floats() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/4)
}

// numbers views memory as numbers of a stored type.
func numbers[T uint16 | uint32](m *memory) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.bytes))),
		len(m.bytes)/int(unsafe.Sizeof(one)))
}
