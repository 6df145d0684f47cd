//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// detach keeps a terminal's Ctrl-C from the process: its parent ends it in order.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
