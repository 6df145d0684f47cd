package plugins

import (
	"time"

	"github.com/kvrelay/engine/abi"
)

// How the fuel of a decision is found.
const (
	calibrateTo   = time.Millisecond // what a decision may take
	calibrateRuns = 12               // of each table, of which the quickest counts
	calibrateMost = 256_000_000      // units, however cheap a module makes them look
)

// calibrate measures how long this module takes for a unit of fuel, and gives a decision as much as
// fits a millisecond, at least what the ABI promises. The measure is taken once, at load, on tables
// of a full queue: seen anew, and with a few changes. The slower kind counts, and of its runs the
// quickest, so that what else the machine does makes the limit smaller by little. A module of which
// no measure can be taken gets the promise alone.
func (g *generation) calibrate(s *sandbox) {
	if g.limits.Fuel > 0 {
		return
	}
	m := newMock(g.capacity)
	m.cuts = g.about.Flags&abi.DescSelects == 0
	m.fill(min(g.slots, 1000))
	var slowest float64 // nanoseconds a unit
	for _, anew := range []bool{true, false} {
		best := 0.0
		for range calibrateRuns {
			m.change(min(64, g.slots))
			m.happen()
			if m.cuts {
				m.preset()
			}
			s.stale = anew
			rate := s.rate(&m.view)
			if rate == 0 {
				return
			}
			if best == 0 || rate < best {
				best = rate
			}
		}
		slowest = max(slowest, best)
	}
	fuel := int64(float64(calibrateTo.Nanoseconds()) / slowest)
	g.calibrated = min(max(fuel, g.floor()), calibrateMost)
}

// rate is how many nanoseconds of pol_decide one unit of fuel stands for in a step; 0 when the step
// faults or uses none.
func (s *sandbox) rate(v *abi.View) float64 {
	s.timed = true
	_, a, err := s.step(v, nil)
	s.timed = false
	if err != nil || a.fault != nil || a.fuel <= 0 {
		return 0
	}
	return max(float64(a.took.Nanoseconds()), 1) / float64(a.fuel)
}
