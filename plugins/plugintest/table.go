package plugintest

import (
	"math/rand/v2"
	"slices"

	"github.com/kvrelay/engine/abi"
)

// Table is a record table that lives as an engine's does, with nothing behind it: requests arrive,
// are computed as a policy decides, make tokens, and leave; their slots are used again. The same
// seed and the same answers give the same steps.
type Table struct {
	View     abi.View
	Arrivals bool // whether new requests come

	chance  *rand.Rand
	ids     uint64
	changed map[uint32]bool
}

// The engine that a Table pretends to be.
const (
	tokenBudget = 512
	chunkMax    = 128
	chunkAlign  = 16
	maxSeqs     = 32
	stepNS      = 10_000_000
)

// NewTable is an empty table of the given number of slots.
func NewTable(seed uint64, slots int) *Table {
	t := &Table{Arrivals: true, chance: rand.New(rand.NewPCG(seed, 1)), changed: map[uint32]bool{}}
	t.View.Header = abi.Header{
		Role: abi.RoleAll, PageTokens: 16, TokenBudget: tokenBudget, ChunkMax: chunkMax,
		ChunkAlign: chunkAlign, MaxSeqs: maxSeqs, MaxAdmit: maxSeqs, FreePages: 1 << 16,
		TotalPages: 1 << 16, DecisionsCap: maxSeqs, KVBytesPerToken: 1024,
	}
	t.View.Records = make([]abi.Record, 0, slots)
	return t
}

// Next applies an answer to the step shown last and brings the table to the next one. The answer
// must have passed plugins.Judge.
func (t *Table) Next(answer []abi.Decision) *abi.View {
	h := &t.View.Header
	h.Step++
	h.NowNS += stepNS
	skipped := t.apply(answer)
	for slot := range t.View.Records {
		r := &t.View.Records[slot]
		if r.State&abi.StateDecoding != 0 && !skipped[uint32(slot)] {
			t.decode(uint32(slot), r)
		}
	}
	for range t.chance.IntN(4) {
		if t.Arrivals {
			t.arrive()
		}
	}
	t.header()
	return &t.View
}

// Live is how many requests are in the table.
func (t *Table) Live() int { return int(t.View.Header.NWaiting + t.View.Header.NRunning) }

// apply computes what the answer runs, within the budget, and returns what it skips.
func (t *Table) apply(answer []abi.Decision) map[uint32]bool {
	skipped := map[uint32]bool{}
	left := tokenBudget - min(tokenBudget, t.View.Header.DecodeTokens)
	running := t.View.Header.NRunning
	for _, d := range answer {
		r := &t.View.Records[d.Slot]
		if d.Action == abi.ActionSkip {
			skipped[d.Slot] = true
			continue
		}
		tokens := min(d.Tokens, left, chunkMax, r.RemainingPrefill)
		if tokens < r.RemainingPrefill {
			tokens -= tokens % chunkAlign
		}
		if r.State&abi.StateDecoding != 0 || tokens == 0 {
			continue
		}
		if r.State&abi.StateRunning == 0 {
			if running == maxSeqs {
				continue
			}
			running++
		}
		left -= tokens
		t.prefill(d.Slot, r, tokens)
	}
	return skipped
}

func (t *Table) prefill(slot uint32, r *abi.Record, tokens uint32) {
	t.changed[slot] = true
	r.State |= abi.StateRunning
	r.RemainingPrefill -= tokens
	r.ServiceTokens += uint64(tokens)
	r.LastSchedNS = t.View.Header.NowNS
	r.PagesHeld = (r.PromptTokens-r.RemainingPrefill)/16 + 1
	r.PagesNeeded = r.PromptTokens/16 + 1 - r.PagesHeld
	if r.RemainingPrefill == 0 {
		r.State |= abi.StateDecoding | abi.StateFirstTokenSent
		r.FirstTokenNS, r.Generated = t.View.Header.NowNS, 1
	}
}

// decode makes a token; the last one frees the slot.
func (t *Table) decode(slot uint32, r *abi.Record) {
	t.changed[slot] = true
	r.Generated++
	r.ServiceTokens++
	r.LastSchedNS = t.View.Header.NowNS
	if r.Generated >= r.MaxNew {
		*r = abi.Record{}
	}
}

// arrive puts a request into a free slot, or drops it when there is none.
func (t *Table) arrive() {
	slot := slices.IndexFunc(t.View.Records, func(r abi.Record) bool { return r.State == 0 })
	if slot < 0 {
		if len(t.View.Records) == cap(t.View.Records) {
			return
		}
		slot = len(t.View.Records)
		t.View.Records = append(t.View.Records, abi.Record{})
	}
	t.ids++
	prompt := 1 + uint32(t.chance.IntN(300))
	if t.chance.IntN(8) == 0 {
		prompt *= 10
	}
	t.View.Records[slot] = abi.Record{
		ID: t.ids, ArrivalNS: t.View.Header.NowNS - t.chance.Int64N(stepNS), State: abi.StateLive,
		PromptTokens: prompt, RemainingPrefill: prompt, MaxNew: 1 + uint32(t.chance.IntN(40)),
		PagesNeeded: prompt/16 + 1, PrefixHash: uint64(t.chance.IntN(5)),
	}
	t.changed[uint32(slot)] = true
}

// header brings the header and the changed list in line with the table.
func (t *Table) header() {
	h := &t.View.Header
	h.NSlots, h.Seed = uint32(len(t.View.Records)), t.chance.Uint64()
	h.NWaiting, h.NRunning, h.DecodeTokens = 0, 0, 0
	for _, r := range t.View.Records {
		switch {
		case r.State == 0:
		case r.State&abi.StateRunning == 0:
			h.NWaiting++
		default:
			h.NRunning++
		}
		if r.State&abi.StateDecoding != 0 {
			h.DecodeTokens++
		}
	}
	t.View.Changed = t.View.Changed[:0]
	for slot := range h.NSlots {
		if t.changed[slot] {
			t.View.Changed = append(t.View.Changed, slot)
		}
	}
	clear(t.changed)
}
