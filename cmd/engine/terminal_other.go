//go:build !linux && !darwin && !windows

package main

// isTTY does not know, and takes a pipe's manners.
func isTTY(uintptr) bool { return false }
