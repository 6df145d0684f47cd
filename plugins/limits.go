package plugins

import (
	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// Limits bounds one module. A field of 0 means its value in DefaultLimits.
type Limits struct {
	Module      lint.Limits // of the file
	MemoryPages int         // of the guest's memory, pages of 64 KiB; at most MaxMemoryPages
	ConfigBytes int         // of the settings given to pol_init
	LogLines    int         // that it may write in a second; below 0 means none

	// Fuel is what one pol_decide may use. 0 means auto: what is measured at load to be a
	// millisecond, at least abi.LimitFuelBase; and abi.LimitFuelPerChanged for each changed record.
	Fuel int64
	// InitFuel is what everything at load may use together: start, descriptor, regions, pol_init.
	InitFuel int64
}

// MaxMemoryPages is the most that MemoryPages may be set to: 64 MiB.
const MaxMemoryPages = 1024

// DefaultLimits is the limits of the policy ABI, section C.11.
func DefaultLimits() Limits {
	return Limits{
		Module:      lint.Default(),
		MemoryPages: abi.LimitMemoryPages,
		ConfigBytes: abi.LimitConfigBytes,
		LogLines:    abi.LimitLogLinesPerSecond,
		InitFuel:    abi.LimitFuelInit,
	}
}

// withDefaults fills the fields that are 0 and makes the parts agree.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.MemoryPages <= 0 {
		l.MemoryPages = d.MemoryPages
	}
	l.MemoryPages = min(l.MemoryPages, MaxMemoryPages)
	if l.ConfigBytes <= 0 {
		l.ConfigBytes = d.ConfigBytes
	}
	if l.LogLines == 0 {
		l.LogLines = d.LogLines
	}
	if l.InitFuel <= 0 {
		l.InitFuel = d.InitFuel
	}
	if l.Module.MemoryPages == 0 {
		l.Module.MemoryPages = l.MemoryPages
	}
	return l
}

// runtimeFuel is how much more fuel a module is promised that brings a language's runtime with it.
// Fuel compares within one toolchain, not across: what Go's compiler makes of a loop is charged
// twenty times what a C compiler's is, for the same time.
const runtimeFuel = 20

// floor is the fuel that a decision has without changed records before anything was measured.
func (g *generation) floor() int64 {
	if g.runtimeInside {
		return runtimeFuel * abi.LimitFuelBase
	}
	return abi.LimitFuelBase
}

// decideFuel is the fuel of one pol_decide with the given number of changed records.
func (g *generation) decideFuel(changed int) int64 {
	if g.limits.Fuel > 0 {
		return g.limits.Fuel
	}
	more := abi.LimitFuelPerChanged * int64(changed)
	if g.runtimeInside {
		more *= runtimeFuel
	}
	return max(g.calibrated, g.floor()) + more
}
