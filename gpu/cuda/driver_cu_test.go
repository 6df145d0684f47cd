//go:build cuda

package cuda

import (
	"errors"
	"testing"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// TestNoDriver runs in a process that is told that there is no driver: the binary starts, and says
// what is missing.
func TestNoDriver(t *testing.T) {
	t.Setenv("ENGINE_CUDA_DRIVER", "")
	_, err := OpenDriver(0)
	if !errors.Is(err, driver.ErrNoDevice) {
		t.Fatal(err)
	}
	t.Log(err)
}
