//go:build cuda

package drv_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/drv"
)

// TestNoDriver loads in processes of its own, since a process loads once.
func TestNoDriver(t *testing.T) {
	if os.Getenv("ENGINE_TEST_LOAD") == "1" {
		_, err := drv.Load()
		if !errors.Is(err, driver.ErrNoDevice) {
			t.Fatal(err)
		}
		t.Log("said:", err)
		return
	}
	for path, says := range map[string]string{
		"":                      "is empty",
		"/nowhere/libcuda.so.1": "/nowhere/libcuda.so.1",
		"libm.so.6":             "has no cuInit",
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestNoDriver$", "-test.v")
		cmd.Env = append(os.Environ(), "ENGINE_TEST_LOAD=1", drv.PathVariable+"="+path)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) {
			t.Errorf("driver %q: %v, and not %q in:\n%s", path, err, says, out)
		}
	}
}
