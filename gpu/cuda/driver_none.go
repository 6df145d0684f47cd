//go:build !cuda

package cuda

import (
	"fmt"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// Built says whether this binary can open a device.
func Built() bool { return false }

// OpenDriver refuses: this binary has no CUDA in it.
func OpenDriver(int) (*driver.Driver, error) {
	return nil, fmt.Errorf("%w: this binary was built without CUDA; build it with \"make cuda\", "+
		"or set backend.kind to \"cpu\"", driver.ErrNoDevice)
}
