package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvrelay/engine/abi"
)

// policyFunc is a policy made of a function.
type policyFunc func(v *abi.View, out []abi.Decision) ([]abi.Decision, error)

func (f policyFunc) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	return f(v, out)
}

// mirror keeps a table of its own from the changed lists alone, as a guest does, and notes the
// first difference from what the host shows.
type mirror struct {
	policy  Policy
	s       *Scheduler // What it shows is compared with what it holds, where that is known.
	records map[uint32]abi.Record
	calls   int
	err     error
}

func newMirror(p Policy) *mirror { return &mirror{policy: p, records: map[uint32]abi.Record{}} }

func (m *mirror) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	m.calls++
	if m.err == nil {
		m.err = m.follow(v)
	}
	return m.policy.Decide(v, out)
}

// Answered implements Answerer.
func (m *mirror) Answered() (string, uint64, uint32) {
	if a, ok := m.policy.(Answerer); ok {
		return a.Answered()
	}
	return "", abi.CapChunkLengths, 0
}

// fresh compares every record, and every counter of the header, with what they are made of.
func (m *mirror) fresh(v *abi.View) error {
	live := 0
	for slot, q := range m.s.table.owner[:m.s.table.high] {
		if q == nil {
			continue
		}
		live++
		if r := m.s.record(q); r != v.Records[slot] {
			return fmt.Errorf("step %d: slot %d shows\n%+v, the request is\n%+v", v.Header.Step,
				slot, v.Records[slot], r)
		}
	}
	if live != len(m.s.queue)+len(m.s.held) {
		return fmt.Errorf("step %d: %d requests are shown, %d wait and %d hold pages",
			v.Header.Step, live, len(m.s.queue), len(m.s.held))
	}
	return nil
}

func (m *mirror) follow(v *abi.View) error {
	if m.s != nil {
		if err := m.fresh(v); err != nil {
			return err
		}
	}
	if v.Header.Flags&abi.FlagResync != 0 {
		clear(m.records)
	}
	unique := slices.Compact(slices.Clone(v.Changed))
	if !slices.IsSorted(v.Changed) || len(unique) != len(v.Changed) {
		return fmt.Errorf("step %d: changed list %v is not ascending and unique",
			v.Header.Step, v.Changed)
	}
	if int(v.Header.NChanged) != len(v.Changed) || int(v.Header.NSlots) != len(v.Records) {
		return fmt.Errorf("step %d: header counts %d changed and %d slots, there are %d and %d",
			v.Header.Step, v.Header.NChanged, v.Header.NSlots, len(v.Changed), len(v.Records))
	}
	for _, slot := range v.Changed {
		if v.Records[slot] == m.records[slot] {
			return fmt.Errorf("step %d: slot %d is listed and did not change", v.Header.Step, slot)
		}
		m.records[slot] = v.Records[slot]
	}
	ids := map[uint64]bool{}
	waiting, running := 0, 0
	for slot, r := range v.Records {
		if r != m.records[uint32(slot)] {
			return fmt.Errorf("step %d: slot %d changed and is not listed", v.Header.Step, slot)
		}
		if r.State == 0 {
			continue
		}
		if ids[r.ID] {
			return fmt.Errorf("step %d: request %d is in two slots", v.Header.Step, r.ID)
		}
		ids[r.ID] = true
		if r.State&abi.StateRunning != 0 {
			running++
		} else {
			waiting++
		}
	}
	if waiting != int(v.Header.NWaiting) || running != int(v.Header.NRunning) {
		return fmt.Errorf("step %d: %d waiting and %d running, the header says %d and %d",
			v.Header.Step, waiting, running, v.Header.NWaiting, v.Header.NRunning)
	}
	return nil
}

// chance is a policy that does anything it may, and with some probability what it may not.
type chance struct {
	r        *rand.Rand
	badness  float64
	laziness float64
	skips    float64
	takes    float64 // How often it preempts, and a tenth as often sheds, what it may.
	flags    uint32
}

// Answered implements Answerer.
func (c *chance) Answered() (string, uint64, uint32) {
	granted := uint64(abi.CapChunkLengths)
	if c.takes > 0 {
		granted |= abi.CapPreempt | abi.CapShed
	}
	return "chance", granted, c.flags
}

func (c *chance) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	if c.r.Float64() < c.badness {
		return c.bad(v, out)
	}
	for _, i := range c.r.Perm(len(v.Records)) {
		r := &v.Records[i]
		if r.State == 0 || c.r.Float64() < c.laziness || len(out) >= int(v.Header.DecisionsCap) {
			continue
		}
		d := abi.Decision{Slot: uint32(i), IDLow: uint32(r.ID), Tokens: abi.TokensAuto}
		taken := r.State&(abi.StateRunning|abi.StatePinned) == abi.StateRunning
		switch {
		case c.takes > 0 && taken && c.r.Float64() < c.takes:
			d.Action = abi.ActionPreemptRecompute
		case c.takes > 0 && c.r.Float64() < c.takes/10:
			d.Action = abi.ActionShed
		case c.r.Float64() < c.skips:
			d.Action = abi.ActionSkip
		case r.State&abi.StateDecoding != 0:
			d.Tokens = 1
		case r.RemainingPrefill > 0 && c.r.IntN(3) > 0:
			d.Tokens = 1 + c.r.Uint32N(r.RemainingPrefill)
		}
		out = append(out, d)
	}
	return out, nil
}

// bad answers something that the judge must refuse whole, or fails.
func (c *chance) bad(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	switch c.r.IntN(4) {
	case 0:
		return out, errors.New("no decision today")
	case 1:
		for range int(v.Header.DecisionsCap) + 1 {
			out = append(out, abi.Decision{})
		}
	case 2:
		out = append(out, abi.Decision{Slot: v.Header.NSlots})
	case 3:
		out = append(out, abi.Decision{
			Slot: c.r.Uint32N(8), Tokens: c.r.Uint32(), IDLow: c.r.Uint32(),
			Action: uint8(c.r.Uint32()),
		})
	}
	return out, nil
}
