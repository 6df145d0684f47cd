//go:build !amd64

package cpu

// fastMicro is nil: this architecture has plain Go only.
func fastMicro(ISA) *micro { return nil }

// fastDots is nil for the same reason.
func fastDots() *dotMicro { return nil }
