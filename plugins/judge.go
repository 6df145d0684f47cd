package plugins

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// Judge checks an answer against the records as they were shown: the hard rules of the ABI, section
// C.12. The engine's scheduler judges for itself, against its own state; this is for trying modules
// without an engine.
func Judge(v *abi.View, out []abi.Decision) error {
	if len(out) > int(v.Header.DecisionsCap) {
		return fmt.Errorf("%d decisions, at most %d are allowed", len(out), v.Header.DecisionsCap)
	}
	listed := map[uint32]bool{}
	for i, d := range out {
		if err := judgeOne(v, d); err != nil {
			return fmt.Errorf("decision %d, slot %d: %w", i, d.Slot, err)
		}
		if listed[d.Slot] {
			return fmt.Errorf("decision %d, slot %d: the slot is listed twice", i, d.Slot)
		}
		listed[d.Slot] = true
	}
	return nil
}

func judgeOne(v *abi.View, d abi.Decision) error {
	if d.Slot >= v.Header.NSlots {
		return fmt.Errorf("there are %d slots", v.Header.NSlots)
	}
	r := &v.Records[d.Slot]
	switch {
	case r.State&abi.StateLive == 0:
		return fmt.Errorf("the slot is free")
	case d.IDLow != uint32(r.ID):
		return fmt.Errorf("id_low is %d, the slot's request is %d", d.IDLow, uint32(r.ID))
	case d.Reserved != 0:
		return fmt.Errorf("reserved is %d", d.Reserved)
	}
	switch d.Action {
	case abi.ActionSkip:
		return nil
	case abi.ActionRun:
		return judgeTokens(r, d.Tokens)
	case abi.ActionPreemptRecompute, abi.ActionPreemptSwap, abi.ActionShed:
		return fmt.Errorf("action %s needs a capability that is not offered",
			abi.ActionName(d.Action))
	default:
		return fmt.Errorf("action %d does not exist", d.Action)
	}
}

func judgeTokens(r *abi.Record, tokens uint32) error {
	decoding := r.State&abi.StateDecoding != 0
	switch {
	case tokens == abi.TokensAuto:
		return nil
	case decoding && tokens != 1:
		return fmt.Errorf("%d tokens for a decoding request", tokens)
	case !decoding && tokens == 0:
		return fmt.Errorf("it runs with 0 tokens")
	case !decoding && tokens > r.RemainingPrefill:
		return fmt.Errorf("%d tokens, %d are left to compute", tokens, r.RemainingPrefill)
	}
	return nil
}
