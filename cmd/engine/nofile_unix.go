//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may have open; Go has raised that to the hard limit at
// its start. Where nobody can tell, it is the largest int.
func openFiles() int {
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	if n := uint64(r.Cur); err == nil && n < math.MaxInt {
		return int(n)
	}
	return math.MaxInt
}
