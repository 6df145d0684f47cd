package cpu_test

import (
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/gputest"
)

// TestSuiteWithoutDots: a processor with AVX-512 that does not multiply pairs of bfloat16 gives the
// bits of one that does.
func TestSuiteWithoutDots(t *testing.T) {
	gputest.Run(t, func() gpu.Device {
		d, err := cpu.OpenWithoutDots(3)
		if err != nil {
			t.Skip(err)
		}
		return d
	})
}

// TestBF16WithTDP: the two orders exclude each other, and the refusal says what to set.
func TestBF16WithTDP(t *testing.T) {
	_, err := cpu.Open(cpu.Options{TDP: true, BF16Activations: true})
	if err == nil || !strings.Contains(err.Error(), `set backend.numerics = "fma"`) {
		t.Errorf("%v", err)
	}
}
