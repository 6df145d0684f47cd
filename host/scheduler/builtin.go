package scheduler

import (
	"slices"

	"github.com/kvrelay/engine/abi"
)

// FCFS is the built-in policy: first come, first served, ties by ID, each chunk as long as the
// budget allows. It follows the rule of fcfs in abi/SPEC.md to the bit, as builtin:fcfs does. The
// zero value is ready to use.
type FCFS struct {
	slots []uint32
}

// Decide implements Policy. It never fails.
func (f *FCFS) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	f.slots = f.slots[:0]
	for slot := range v.Header.NSlots {
		r := &v.Records[slot]
		if r.State&(abi.StateLive|abi.StateDecoding) == abi.StateLive && r.RemainingPrefill > 0 {
			f.slots = append(f.slots, slot)
		}
	}
	slices.SortFunc(f.slots, func(a, b uint32) int { return first(&v.Records[a], &v.Records[b]) })
	h := &v.Header
	left := h.TokenBudget - min(h.DecodeTokens, h.TokenBudget)
	for _, slot := range f.slots {
		if left == 0 || len(out) >= int(h.DecisionsCap) {
			break
		}
		r := &v.Records[slot]
		tokens := min(r.RemainingPrefill, h.ChunkMax, left)
		if tokens < r.RemainingPrefill && h.ChunkAlign > 1 {
			tokens -= tokens % h.ChunkAlign
		}
		if tokens == 0 {
			break
		}
		out = append(out, abi.Decision{
			Slot: slot, Tokens: tokens, IDLow: uint32(r.ID), Action: abi.ActionRun,
		})
		left -= tokens
	}
	return out, nil
}

// first orders two records by arrival, ties by ID.
func first(a, b *abi.Record) int {
	switch {
	case a.ArrivalNS < b.ArrivalNS || a.ArrivalNS == b.ArrivalNS && a.ID < b.ID:
		return -1
	case a.ArrivalNS == b.ArrivalNS && a.ID == b.ID:
		return 0
	}
	return 1
}
