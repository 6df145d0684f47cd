//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchHangup reloads on SIGHUP.
func (i *instance) watchHangup(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				i.logReload(i.reload(ctx))
			case <-ctx.Done():
				return
			}
		}
	}()
}
