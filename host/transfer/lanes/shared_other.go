//go:build !linux

package lanes

import (
	"errors"
	"os"
)

var errNoShared = errors.New("there are no lanes on this system")

// shared is memory of the host that two processes map: there is none here.
type shared struct{ memory []byte }

func newShared(int) (*shared, error)            { return nil, errNoShared }
func (*shared) duplicate() (*os.File, error)    { return nil, errNoShared }
func openShared(*os.File, int) (*shared, error) { return nil, errNoShared }
func (*shared) close()                          {}
func gone(int) bool                             { return false }
