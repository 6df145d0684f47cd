package cuda_test

import (
	"fmt"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
	"github.com/kvrelay/engine/gpu/gputest"
)

// open opens a device on the driver in Go.
func open(t testing.TB, o cuda.Options, f fake.Options) (*cuda.Device, *fake.Driver) {
	t.Helper()
	if o.Type == gpu.F32 {
		o.Type = gpu.BF16
	}
	driver, state := fake.New(f)
	d, err := cuda.Open(driver, o)
	if err != nil {
		t.Fatal(err)
	}
	return d, state
}

// steady is the device on a driver whose products sum a row in one order, however many there are:
// the suite then holds the rest of the device to equal bits.
type steady struct{ *cuda.Device }

func (steady) RowsVary() bool { return false }

func TestSuite(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			gputest.Run(t, func() gpu.Device {
				d, _ := open(t, cuda.Options{StagingBytes: 1 << 20}, fake.Options{Seed: seed})
				return steady{d}
			})
		})
	}
}
