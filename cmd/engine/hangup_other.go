//go:build !unix

package main

import "context"

// watchHangup does nothing: this system has no SIGHUP; `engine reload` does the same.
func (i *instance) watchHangup(context.Context) {}
