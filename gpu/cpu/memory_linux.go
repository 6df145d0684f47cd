package cpu

import "syscall"

// hugePage is the size and alignment of a huge page on amd64 and arm64.
const hugePage = 2 << 20

// mapHuge maps zeroed memory, a huge page more than asked so that it can be aligned, and advises
// huge pages. nil means that the system refused: the caller falls back to ordinary memory.
func mapHuge(size int) []byte {
	mapped, err := syscall.Mmap(-1, 0, size+hugePage,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	// The advice changes speed alone, and a kernel without huge pages refuses it.
	_ = syscall.Madvise(mapped, syscall.MADV_HUGEPAGE)
	return mapped
}

func unmap(mapped []byte) {
	if err := syscall.Munmap(mapped); err != nil {
		panic("cpu: unmap memory of our own: " + err.Error())
	}
}
