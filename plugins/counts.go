package plugins

import (
	"cmp"
	"slices"
	"time"
)

// latest is how many of the latest calls the quantiles in List are of.
const latest = 512

// counts is what List tells of a module's work.
type counts struct {
	calls, faults uint64
	walls         [latest]time.Duration // of the latest calls, in a ring
	fuel          [latest]int64         // of the same calls
	memory        int64
	lastFault     string
}

func (c *counts) called(wall time.Duration, fuel, memory int64) {
	c.walls[c.calls%latest], c.fuel[c.calls%latest] = wall, fuel
	c.calls++
	c.memory = memory
}

func (c *counts) faulted(f *Fault) {
	c.faults++
	c.lastFault = f.Error()
}

// p99 is the time that one call in a hundred of the latest takes at least.
func (c *counts) p99() time.Duration { return top(c.walls[:min(c.calls, latest)]) }

// fuel99 is the fuel that one call in a hundred of the latest uses at least.
func (c *counts) fuel99() int64 { return top(c.fuel[:min(c.calls, latest)]) }

// top is the 99th percentile of values, 0 of none.
func top[T cmp.Ordered](values []T) T {
	n := len(values)
	if n == 0 {
		var none T
		return none
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[n-1-n/100]
}
