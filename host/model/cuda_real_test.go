//go:build cuda

package model_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// TestRealCUDA is TestCUDA on the driver that ENGINE_CUDA_DRIVER names, or on the system's: all
// goldens, heads of 64 and quantised files among them. Other orders of an emulated driver than the
// first take less of each.
func TestRealCUDA(t *testing.T) {
	drv, err := cuda.OpenDriver(0)
	if errors.Is(err, driver.ErrNoDevice) && os.Getenv("ENGINE_REQUIRE_CUDA") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	device, err := cuda.Open(*drv, cuda.Options{Type: gpu.BF16})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for _, r := range goldens {
		most := math.MaxInt
		if seed := os.Getenv("ENGINE_EMULATOR_SEED"); seed != "" && seed != "0" {
			if most = 16; strings.Contains(r.model, "gguf/") {
				continue // The same models again, from other files.
			}
		}
		t.Run(r.model, func(t *testing.T) { sameTokens(t, device, r, most) })
	}
	t.Run("mistakes", func(t *testing.T) {
		findMistakes(t, device, "random/gemma3")
		findMistakes(t, device, "stories260k/hf-bf16")
	})
}
