//go:build !unix

package main

import "os"

// catchHangups catches nothing: this system has no SIGHUP; `engine reload` does the same.
func catchHangups() (hangups <-chan os.Signal, release func()) { return nil, func() {} }
