package plugins

import (
	"slices"
	"time"
)

// latest is how many of the latest calls the quantile in List is of.
const latest = 512

// counts is what List tells of a module's work.
type counts struct {
	calls, faults uint64
	walls         [latest]time.Duration // of the latest calls, in a ring
	memory        int64
	lastFault     string
}

func (c *counts) called(wall time.Duration, memory int64) {
	c.walls[c.calls%latest] = wall
	c.calls++
	c.memory = memory
}

func (c *counts) faulted(f *Fault) {
	c.faults++
	c.lastFault = f.Error()
}

// p99 is the time that one call in a hundred of the latest takes at least.
func (c *counts) p99() time.Duration {
	n := int(min(c.calls, latest))
	if n == 0 {
		return 0
	}
	sorted := slices.Clone(c.walls[:n])
	slices.Sort(sorted)
	return sorted[n-1-n/100]
}
