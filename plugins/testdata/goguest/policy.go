// goguest: the prompt with the least left to compute first; waiting counts in its favour.
//
// A request's rank is remaining_prefill - aging * seconds waited, the smallest first, ties by id. All
// requests age at one rate, so that remaining_prefill + aging * arrival ranks alike, and only what
// changed needs a new place. What the fields mean: abi/SPEC.md.
package main

import (
	"github.com/kvrelay/engine/abi"
	pol "github.com/kvrelay/engine/abi/guest/go"
)

type mine struct {
	waiting *pol.Order
	aging   int64 // Tokens of rank that a second of waiting is worth.
}

func newMine(config *pol.Config, slots int) (pol.Policy, error) {
	aging := config.Int("aging_tokens_per_s", 200, 0, 1_000_000)
	return &mine{waiting: pol.NewOrder(slots), aging: aging}, nil
}

func (m *mine) place(r *abi.Record) (pol.Key, bool) {
	first := int64(r.RemainingPrefill)*1000 + m.aging*(r.ArrivalNS/1_000_000)
	return pol.Key{First: first, ID: r.ID}, pol.Prefills(r)
}

func (m *mine) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	if err := m.waiting.Update(v, m.place); err != nil {
		return out, err
	}
	chunks := pol.ChunksOf(&v.Header)
	for _, slot := range m.waiting.Slots() {
		r := &v.Records[slot]
		tokens := chunks.Take(r.RemainingPrefill)
		if tokens == 0 || len(out) == cap(out) {
			break
		}
		out = append(out, pol.Run(slot, r, tokens))
	}
	return out, nil
}

var registered = pol.Register("goguest", "1.0.0", newMine)

func main() {}
