package cpu

import (
	"fmt"

	"github.com/kvrelay/engine/gpu"
)

// buffer is activation memory: plain float32. Device and Twin share it.
type buffer struct{ data []float32 }

// Elements implements gpu.Buffer.
func (b *buffer) Elements() int { return len(b.data) }

// floats gives the elements behind a buffer that this package allocated.
func floats(b gpu.Buffer) []float32 { return b.(*buffer).data }

// maxElements bounds one allocation: more than 2⁴⁰ floats is a mistake, not a wish.
const maxElements = 1 << 40

// activations is the part of gpu.Memory that deals with buffers.
type activations struct{}

// Alloc implements gpu.Memory.
func (activations) Alloc(elements int) (gpu.Buffer, error) {
	if elements < 0 || elements > maxElements {
		return nil, fmt.Errorf("allocate %d elements: %w", elements, gpu.ErrOutOfMemory)
	}
	return &buffer{data: make([]float32, elements)}, nil
}

// Write implements gpu.Memory.
func (activations) Write(dst gpu.Buffer, src []float32) error {
	if len(src) > dst.Elements() {
		return fmt.Errorf("write %d elements to a buffer of %d", len(src), dst.Elements())
	}
	copy(floats(dst), src)
	return nil
}

// Read implements gpu.Memory.
func (activations) Read(dst []float32, src gpu.Buffer, first int) error {
	if first < 0 || first > src.Elements()-len(dst) {
		return fmt.Errorf("read elements [%d, %d) of a buffer of %d",
			first, first+len(dst), src.Elements())
	}
	copy(dst, floats(src)[first:])
	return nil
}

// Sync implements gpu.Memory. Kernels here are done when they return.
func (activations) Sync() error { return nil }
