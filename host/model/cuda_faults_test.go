package model_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/model"
)

// faultyGPU is a driver in plain Go of which one call fails, once.
type faultyGPU struct {
	call string
	code int
	said int // how often it has failed
}

func (f *faultyGPU) fail(call string) int {
	if call != f.call {
		return 0
	}
	f.call = ""
	f.said++
	return f.code
}

func (f *faultyGPU) model(t *testing.T) *model.Model {
	t.Helper()
	driver, _ := fake.New(fake.Options{Fail: f.fail})
	device, err := cuda.Open(driver, cuda.Options{Type: gpu.BF16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	return loadModel(t, device, "random/qwen3", 16)
}

// TestCUDAFaults: a step that the driver refuses is an error that says which call failed and why,
// and may be computed again with the right numbers; one that loses the device is gpu.ErrLost, as is
// every step after it.
func TestCUDAFaults(t *testing.T) {
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	sound := newSequence(t, (&faultyGPU{}).model(t), 16, 0, 16).run(prompt, 8)
	for _, c := range []struct {
		name, call string
		code       int
		is         error
		says       string
	}{
		{"out of memory", "cuMemAlloc", 2, gpu.ErrOutOfMemory, "out of memory"},
		{"a refused launch", "cuLaunchKernel", 701, nil, "too many resources for a launch"},
		{"a lost device", "cuStreamSynchronize", 700, gpu.ErrLost, "illegal address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &faultyGPU{}
			m := f.model(t)
			f.call, f.code = c.call, c.code
			step := batch.Batch{Items: []batch.Item{newSequence(t, m, 16, 0, 16).item(prompt)}}
			_, err := m.Run(&step)
			if f.said != 1 || err == nil || c.is != nil && !errors.Is(err, c.is) ||
				!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.call) {
				t.Fatalf("the call failed %d times; the step says: %v", f.said, err)
			}
			if c.is == gpu.ErrLost {
				if _, err := m.Run(&step); !errors.Is(err, gpu.ErrLost) {
					t.Errorf("the next step: %v", err)
				}
				return
			}
			if errors.Is(err, gpu.ErrLost) {
				t.Errorf("the device counts as lost: %v", err)
			}
			sameBits(t, "the step again", newSequence(t, m, 16, 0, 16).run(prompt, 8), sound)
		})
	}
}

// TestCUDAPoolTooLarge: pages that do not fit are an error that says so, and fewer are then taken.
func TestCUDAPoolTooLarge(t *testing.T) {
	driver, _ := fake.New(fake.Options{Memory: 256 << 20})
	device, err := cuda.Open(driver, cuda.Options{Type: gpu.BF16})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	m, err := model.Load(device, modelDir(t, "random/qwen3"), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewKV(1<<20, 16); !errors.Is(err, gpu.ErrOutOfMemory) ||
		!strings.Contains(err.Error(), "page pool") {
		t.Errorf("a pool beyond the memory: %v", err)
	}
	if _, err := m.NewKV(64, 16); err != nil {
		t.Errorf("a pool that fits: %v", err)
	}
}
