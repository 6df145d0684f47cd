//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// catchHangups takes SIGHUP from now on, so that one that comes while the model is still loading
// does not end the process. release gives it back.
func catchHangups() (hangups <-chan os.Signal, release func()) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	return caught, func() { signal.Stop(caught) }
}
