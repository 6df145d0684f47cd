package main

import "golang.org/x/sys/unix"

// isTTY asks for the settings that only a terminal has.
func isTTY(fd uintptr) bool {
	_, err := unix.IoctlGetTermios(int(fd), unix.TIOCGETA)
	return err == nil
}
