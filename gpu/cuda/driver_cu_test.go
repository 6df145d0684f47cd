//go:build cuda

package cuda_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/gputest"
)

// real opens a device on the driver that ENGINE_CUDA_DRIVER names, or on the system's.
func real(t testing.TB, o cuda.Options) *cuda.Device {
	t.Helper()
	drv, err := cuda.OpenDriver(0)
	if errors.Is(err, driver.ErrNoDevice) && os.Getenv("ENGINE_REQUIRE_CUDA") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := cuda.Open(*drv, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRealSuite(t *testing.T) {
	gputest.Run(t, func() gpu.Device {
		d := real(t, cuda.Options{Type: gpu.BF16, StagingBytes: 1 << 20})
		if strings.HasPrefix(d.Info().Name, "Emulated") {
			return steady{d}
		}
		return d
	})
}
