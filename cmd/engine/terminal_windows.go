package main

import console "golang.org/x/sys/windows"

// isTTY asks for the settings that only a console has.
func isTTY(fd uintptr) bool {
	var mode uint32
	return console.GetConsoleMode(console.Handle(fd), &mode) == nil
}
