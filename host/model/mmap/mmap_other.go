//go:build !unix

// Package mmap gives a file's bytes without reading them into memory of their own, where the system
// can.
package mmap

import "os"

// Forget does nothing: what was read stays in memory while somebody refers to it.
func Forget([]byte) {}

// File reads the file: this system has no mapping in the standard library.
func File(path string) ([]byte, func() error, error) {
	data, err := os.ReadFile(path)
	return data, func() error { return nil }, err
}
