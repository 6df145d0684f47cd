//go:build !wasip1

package pol

import "github.com/kvrelay/engine/abi"

// Register names a policy and how it is made. Natively it only returns both; in a module it also
// makes them the module's policy.
func Register(name, version string, create New) *Registration {
	return &Registration{Name: name, Version: version, New: create}
}

// Log writes a line to the engine's log; natively nowhere.
func Log(level int32, line string) {}

// LogLevel is the lowest level that is written.
func LogLevel() int32 { return abi.LogOff }

// Granted are the capabilities this policy got.
func Granted() uint64 { return abi.CapChunkLengths }
