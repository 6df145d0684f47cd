package gpu

import "errors"

// What callers branch on: free something and try again, or give the device up.
var (
	ErrOutOfMemory = errors.New("out of device memory")
	ErrLost        = errors.New("device lost")
)
