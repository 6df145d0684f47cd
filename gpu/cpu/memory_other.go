//go:build !linux

package cpu

const hugePage = 2 << 20

// mapHuge gives nothing: huge pages are asked for on Linux only.
func mapHuge(int) []byte { return nil }

func unmap([]byte) {}
