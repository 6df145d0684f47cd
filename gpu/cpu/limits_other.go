//go:build !amd64

package cpu

// fastLimits is nil: this architecture has plain Go only.
func fastLimits(ISA) *limitLoops { return nil }
