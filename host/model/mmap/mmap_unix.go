//go:build unix

// Package mmap gives a file's bytes without reading them into memory of their own, where the system
// can.
package mmap

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Forget lets go of the memory behind a part of what File gave, without unmapping it: the system
// reads the file again where somebody looks at that part, or at the rest of its outermost pages.
func Forget(part []byte) {
	if len(part) == 0 {
		return
	}
	first := unsafe.SliceData(part)
	before := int(uintptr(unsafe.Pointer(first)) & uintptr(os.Getpagesize()-1))
	pages := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(first), -before)), before+len(part))
	// It is advice: where the system does not take it, memory stays in use until the end.
	_ = unix.Madvise(pages, unix.MADV_DONTNEED)
}

// File maps a regular file read-only.
func File(path string) ([]byte, func() error, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("not a regular file")
	}
	size := info.Size()
	if size == 0 { // an empty mapping is an error, an empty file a value
		return nil, func() error { return nil }, nil
	}
	if int64(int(size)) != size {
		return nil, nil, fmt.Errorf("%d bytes cannot be mapped on this machine", size)
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes into memory: %w", size, err)
	}
	return data, func() error { return syscall.Munmap(data) }, nil
}
