package abi

import "fmt"

// Judge checks answers by the hard rules of SPEC.md, section 7. The zero value is ready; it keeps
// scratch of the table's size, so that it allocates only when the table has grown. It belongs to
// one goroutine.
type Judge struct {
	named []uint64 // per slot the turn whose answer named it
	turn  uint64
}

// Check judges an answer against the records as they were shown, of a policy that was granted these
// capabilities. The first broken rule is the error; nothing of the answer counts then.
func (j *Judge) Check(v *View, out []Decision, granted uint64) error {
	if most := int(v.Header.DecisionsCap); len(out) > most {
		return fmt.Errorf("%d decisions, at most %d are allowed", len(out), most)
	}
	if more := len(v.Records) - len(j.named); more > 0 {
		j.named = append(j.named, make([]uint64, more)...)
	}
	j.turn++
	for i, d := range out {
		if err := j.one(v, d, granted); err != nil {
			return fmt.Errorf("decision %d, slot %d: %w", i, d.Slot, err)
		}
	}
	return nil
}

func (j *Judge) one(v *View, d Decision, granted uint64) error {
	if d.Slot >= v.Header.NSlots || int(d.Slot) >= len(v.Records) {
		return fmt.Errorf("the table has %d slots", v.Header.NSlots)
	}
	r := &v.Records[d.Slot]
	switch {
	case r.State&StateLive == 0:
		return fmt.Errorf("the slot is free")
	case d.IDLow != uint32(r.ID):
		return fmt.Errorf("id_low is %d, the slot holds request %d", d.IDLow, r.ID)
	case j.named[d.Slot] == j.turn:
		return fmt.Errorf("listed twice")
	case d.Reserved != 0:
		return fmt.Errorf("reserved is %d, must be 0", d.Reserved)
	}
	j.named[d.Slot] = j.turn
	switch d.Action {
	case ActionRun:
		return judgeTokens(r, d.Tokens)
	case ActionSkip:
		return nil
	case ActionPreemptRecompute, ActionPreemptSwap:
		return judgePreempt(r, d.Action, granted)
	case ActionShed:
		return needs(CapShed, d.Action, granted)
	}
	return fmt.Errorf("unknown action %d", d.Action)
}

func judgePreempt(r *Record, action uint8, granted uint64) error {
	capability := uint64(CapPreempt)
	if action == ActionPreemptSwap {
		capability = CapSwap
	}
	switch err := needs(capability, action, granted); {
	case err != nil:
		return err
	case r.State&StateRunning == 0:
		return fmt.Errorf("it holds no pages that could be taken")
	case r.State&StatePinned != 0:
		return fmt.Errorf("it is pinned: its pages cannot be taken")
	}
	return nil
}

func judgeTokens(r *Record, tokens uint32) error {
	decoding := r.State&StateDecoding != 0
	switch {
	case tokens == TokensAuto:
	case decoding && tokens != 1:
		return fmt.Errorf("%d tokens for a decode, must be 1", tokens)
	case !decoding && (tokens == 0 || tokens > r.RemainingPrefill):
		return fmt.Errorf("%d tokens, %d are left to prefill", tokens, r.RemainingPrefill)
	}
	return nil
}

// needs refuses an action whose capability was not granted.
func needs(capability uint64, action uint8, granted uint64) error {
	if granted&capability != 0 {
		return nil
	}
	return fmt.Errorf("action %d (%s) needs capability %s, which is not granted", action,
		ActionName(action), CapNames(capability))
}
