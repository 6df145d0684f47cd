package cpu_test

import (
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/gputest"
)

// TestSuiteOnModelledTiles: a device that multiplies on tiles, which a model of the processor
// computes, gives the bits of the reference of its class.
func TestSuiteOnModelledTiles(t *testing.T) {
	gputest.Run(t, func() gpu.Device {
		d, err := cpu.OpenModelled(3)
		if err != nil {
			t.Skip(err)
		}
		return d
	})
}
