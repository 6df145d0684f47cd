package driver_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
)

func TestErrorsSayWhatCanBeDone(t *testing.T) {
	kinds := []error{gpu.ErrOutOfMemory, gpu.ErrLost, driver.ErrRefused, driver.ErrNoDevice}
	for _, c := range []struct {
		err  driver.Error
		want error
		text string
	}{
		{driver.Error{Call: "cuMemAlloc", Code: 2}, gpu.ErrOutOfMemory, "out of memory"},
		{driver.Error{Call: "cuStreamSynchronize", Code: 700}, gpu.ErrLost, "illegal address"},
		{driver.Error{Call: "cuStreamSynchronize", Code: 719}, gpu.ErrLost, "launch failed"},
		{driver.Error{Call: "cuLaunchKernel", Code: 1}, driver.ErrRefused, "invalid value"},
		{driver.Error{Call: "cuLaunchKernel", Code: 701}, driver.ErrRefused, "resources"},
		{driver.Error{Call: "cuInit", Code: 100}, driver.ErrNoDevice, "no device"},
		{driver.Error{Call: "cuInit", Code: 4242}, driver.ErrRefused, "error 4242"},
		{driver.Error{Call: "cublasCreate", Code: 3, Lib: "cuBLAS"}, gpu.ErrOutOfMemory, "cuBLAS"},
		{driver.Error{Call: "cublasGemmEx", Code: 13, Lib: "cuBLAS"}, gpu.ErrLost, "error 13"},
		{driver.Error{Call: "cublasGemmEx", Code: 7, Lib: "cuBLAS"}, driver.ErrRefused, "error 7"},
	} {
		err := fmt.Errorf("step 3: %w", &c.err)
		for _, kind := range kinds {
			if got := errors.Is(err, kind); got != (kind == c.want) {
				t.Errorf("%v: is %v: %t", err, kind, got)
			}
		}
		text := err.Error()
		if !strings.Contains(text, c.err.Call) || !strings.Contains(text, c.text) {
			t.Errorf("%q names neither %q nor %q", text, c.err.Call, c.text)
		}
	}
	if driver.Check("cuInit", 0) != nil || driver.Check("cuInit", 1) == nil {
		t.Error("Check takes success for failure")
	}
}

func TestCells(t *testing.T) {
	for name, c := range map[string]struct{ got, want uint64 }{
		"negative":     {driver.Int(-1), 0xffffffff},
		"least":        {driver.Int(math.MinInt32), 0x80000000},
		"float":        {driver.Float(1.5), 0x3fc00000},
		"address":      {driver.Address(0x7f0000000000, 256), 0x7f0000000100},
		"address back": {driver.Address(512, -256), 256},
	} {
		if c.got != c.want {
			t.Errorf("%s: cell %#x, want %#x", name, c.got, c.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an integer of 33 bits went into a 4-byte parameter")
		}
	}()
	driver.Int(1 << 31)
}
