package sim

import (
	"errors"
	"math/rand/v2"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/scheduler"
)

// PolicyKind is how a policy behaves.
type PolicyKind uint8

// The policies.
const (
	// BuiltIn is the scheduler's own.
	BuiltIn PolicyKind = iota
	// Chance does anything that it may.
	Chance
	// Lazy leaves most out and skips decodes.
	Lazy
	// Liar often gives an answer that breaks a rule.
	Liar
	// Trapping often fails.
	Trapping
	// Greedy lists prompts only, the longest first, whole.
	Greedy
	// Ruthless preempts and sheds, as it was granted.
	Ruthless
	policies
)

// newPolicy makes a policy; nil is the built-in one.
func newPolicy(kind PolicyKind, r *rand.Rand) scheduler.Policy {
	switch kind {
	case BuiltIn:
		return nil
	case Greedy:
		return greedy{}
	case Lazy:
		return &chance{r: r, laziness: 0.7, skips: 0.3}
	case Liar:
		return &chance{r: r, laziness: 0.2, lies: 0.4}
	case Ruthless:
		return &chance{r: r, laziness: 0.2, preempts: 0.2, sheds: 0.03}
	case Trapping:
		return &chance{r: r, laziness: 0.2, traps: 0.4}
	}
	return &chance{r: r, laziness: 0.3}
}

var errTrap = errors.New("the policy trapped")

type chance struct {
	r                            *rand.Rand
	laziness, skips, lies, traps float64
	preempts, sheds              float64
}

// Answered implements scheduler.Answerer.
func (c *chance) Answered() (name string, granted uint64, flags uint32) {
	granted = abi.CapChunkLengths
	if c.preempts > 0 {
		granted |= abi.CapPreempt
	}
	if c.sheds > 0 {
		granted |= abi.CapShed
	}
	if c.r.IntN(2) == 0 {
		flags = abi.DescMayFill
	}
	return "chance", granted, flags
}

// Decide implements scheduler.Policy.
func (c *chance) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	if c.r.Float64() < c.traps {
		return append(out, abi.Decision{Slot: 1 << 30}), errTrap
	}
	for _, i := range c.r.Perm(len(v.Records)) {
		r := &v.Records[i]
		if r.State == 0 || c.r.Float64() < c.laziness || len(out) >= int(v.Header.DecisionsCap) {
			continue
		}
		d := abi.Decision{Slot: uint32(i), IDLow: uint32(r.ID), Tokens: abi.TokensAuto}
		switch {
		case c.r.Float64() < c.skips:
			d.Action = abi.ActionSkip
		case c.r.Float64() < c.preempts && r.State&abi.StateRunning != 0 &&
			r.State&abi.StatePinned == 0:
			d.Action = abi.ActionPreemptRecompute
		case c.r.Float64() < c.sheds:
			d.Action = abi.ActionShed
		case r.State&abi.StateDecoding != 0:
			d.Tokens = 1
		case r.RemainingPrefill > 0 && c.r.IntN(3) > 0:
			d.Tokens = 1 + c.r.Uint32N(r.RemainingPrefill)
		}
		out = append(out, d)
	}
	if c.r.Float64() < c.lies {
		out = c.lie(v, out)
	}
	return out, nil
}

// lie appends or changes a decision so that the answer breaks a rule, or may.
func (c *chance) lie(v *abi.View, out []abi.Decision) []abi.Decision {
	switch c.r.IntN(4) {
	case 0:
		return append(out, abi.Decision{Slot: v.Header.NSlots})
	case 1:
		if len(out) > 0 {
			return append(out, out[0])
		}
	case 2:
		for range int(v.Header.DecisionsCap) + 1 {
			out = append(out, abi.Decision{})
		}
		return out
	}
	return append(out, abi.Decision{
		Slot: c.r.Uint32N(8), Tokens: c.r.Uint32(), IDLow: c.r.Uint32(),
		Action: uint8(c.r.Uint32()),
	})
}

type greedy struct{}

// Decide implements scheduler.Policy.
func (greedy) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	for i := len(v.Records) - 1; i >= 0; i-- {
		r := &v.Records[i]
		if r.State != 0 && r.State&abi.StateDecoding == 0 && r.RemainingPrefill > 0 &&
			len(out) < int(v.Header.DecisionsCap) {
			out = append(out, abi.Decision{Slot: uint32(i), IDLow: uint32(r.ID),
				Tokens: r.RemainingPrefill})
		}
	}
	return out, nil
}
