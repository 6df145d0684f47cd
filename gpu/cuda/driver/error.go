package driver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// ErrRefused says that the driver did not take a call: its arguments, or what the device lacks. The
// device is as it was before.
var ErrRefused = errors.New("refused by the driver")

// ErrNoDevice says that there is no driver on this machine, or no device under it.
var ErrNoDevice = errors.New("no CUDA device")

// The driver's codes that this package names.
const (
	codeInvalidValue   = 1
	codeOutOfMemory    = 2
	codeNotInitialised = 3
	codeNoDevice       = 100
	codeInvalidDevice  = 101
	codeNoLibrary      = 35
	codeResources      = 701
	codeUnsupported    = 801
)

// lost are the codes after which every call in the context fails: a kernel touched memory that is
// not there, trapped, ran too long, or the device fell off the bus.
var lost = []int{46, 214, 700, 702, 714, 715, 716, 717, 718, 719, 999}

// names are the driver's own words for the codes that operators meet.
var names = map[int]string{
	codeInvalidValue: "invalid value", codeOutOfMemory: "out of memory",
	codeNotInitialised: "not initialised", codeNoLibrary: "no driver library",
	46: "device unavailable", codeNoDevice: "no device", codeInvalidDevice: "invalid device",
	200: "invalid image", 201: "invalid context", 209: "no kernel image for this device",
	214: "uncorrectable memory error", 218: "invalid PTX", 222: "PTX newer than the driver",
	400: "invalid handle", 500: "not found", 600: "not ready", 700: "illegal address",
	codeResources: "too many resources for a launch", 702: "launch timed out",
	704: "peer access already enabled", 714: "hardware stack error", 715: "illegal instruction",
	716: "misaligned address", 717: "invalid address space", 718: "invalid program counter",
	719: "launch failed", codeUnsupported: "not supported", 900: "stream capture unsupported",
	901: "stream capture invalidated", 999: "unknown error",
}

// Error is a call that the driver, or the library of products, answered with an error.
type Error struct {
	Call string // as the vendor names it
	Code int
	Lib  string // "" is the driver, else the library of products
}

func (e *Error) Error() string {
	lib := "CUDA"
	if e.Lib != "" {
		lib = e.Lib
	}
	if name := names[e.Code]; name != "" && e.Lib == "" {
		return fmt.Sprintf("%s: %s: %s (error %d)", lib, e.Call, name, e.Code)
	}
	return fmt.Sprintf("%s: %s: error %d", lib, e.Call, e.Code)
}

// Unwrap sorts codes by what a caller can do.
func (e *Error) Unwrap() error {
	switch {
	case e.Lib != "":
		if e.Code == productsAllocFailed {
			return gpu.ErrOutOfMemory
		}
		if e.Code == productsExecutionFailed || e.Code == productsInternal {
			return gpu.ErrLost
		}
		return ErrRefused
	case e.Code == codeOutOfMemory:
		return gpu.ErrOutOfMemory
	case slices.Contains(lost, e.Code):
		return gpu.ErrLost
	case e.Code == codeNoDevice || e.Code == codeNoLibrary || e.Code == codeNotInitialised:
		return ErrNoDevice
	}
	return ErrRefused
}

// The codes of the library of products that are told apart.
const (
	productsAllocFailed     = 3
	productsExecutionFailed = 13
	productsInternal        = 14
)

// Check is nil for code 0, which is success.
func Check(call string, code int) error {
	if code == 0 {
		return nil
	}
	return &Error{Call: call, Code: code}
}
