// Package cpu is the default device: it computes on the processor. Twin says in plain Go what
// each kernel means; Device computes the same bits with packed weights, tiles, threads and, where
// the processor has them, AVX2 and FMA.
package cpu

import (
	"errors"

	"github.com/kvrelay/engine/gpu"
)

// ISA selects the instructions of the inner loops.
type ISA string

// The instruction sets. All of them give the same bits.
const (
	Auto ISA = ""     // the best this processor has
	AVX2 ISA = "avx2" // AVX2, FMA and F16C; amd64 only
	Go   ISA = "go"   // plain Go; everywhere
)

// Options configure Open.
type Options struct {
	Threads int // 0 means one a processor (GOMAXPROCS)
	ISA     ISA
}

// Open starts the device's worker threads. An ISA that this processor lacks is an error.
func Open(o Options) (gpu.Device, error) { return nil, errors.ErrUnsupported }
