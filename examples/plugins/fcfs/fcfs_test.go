// Package fcfs tests the policy fcfs as engines run it: as a module in a sandbox.
package fcfs

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

const (
	slots = 300
	most  = 40 // Decisions.
)

func open(t *testing.T) *plugins.Host {
	module, err := os.ReadFile("../../../plugins/builtin/fcfs.wasm")
	if err != nil {
		t.Fatal(err)
	}
	host, err := plugins.New(plugins.Options{Slots: slots, Decisions: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := host.Load(t.Context(), plugins.Spec{Name: "fcfs", Wasm: module}); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Activate("fcfs"); err != nil {
		t.Fatal(err)
	}
	return host
}

// rule is SPEC.md, "The rule of fcfs", read word by word.
func rule(v *abi.View) []abi.Decision {
	var candidates []uint32
	for slot := range v.Header.NSlots {
		r := &v.Records[slot]
		live, decoding := r.State&abi.StateLive != 0, r.State&abi.StateDecoding != 0
		if live && !decoding && r.RemainingPrefill > 0 {
			candidates = append(candidates, slot)
		}
	}
	slices.SortFunc(candidates, func(a, b uint32) int {
		x, y := &v.Records[a], &v.Records[b]
		if x.ArrivalNS < y.ArrivalNS || x.ArrivalNS == y.ArrivalNS && x.ID < y.ID {
			return -1
		}
		return 1
	})
	left := max(int(v.Header.TokenBudget)-int(v.Header.DecodeTokens), 0)
	var out []abi.Decision
	for _, slot := range candidates {
		if left == 0 || len(out) == most {
			break
		}
		r := &v.Records[slot]
		tokens := min(int(r.RemainingPrefill), int(v.Header.ChunkMax), left)
		if tokens < int(r.RemainingPrefill) && v.Header.ChunkAlign > 1 {
			tokens -= tokens % int(v.Header.ChunkAlign)
		}
		if tokens == 0 {
			break
		}
		out = append(out, abi.Decision{Slot: slot, Tokens: uint32(tokens), IDLow: uint32(r.ID)})
		left -= tokens
	}
	return out
}

// table is a random queue that changes from step to step.
type table struct {
	random *rand.Rand
	view   abi.View
	nextID uint64
}

// next changes a share of the slots, sometimes all, and lists what changed.
func (q *table) next() *abi.View {
	v, r := &q.view, q.random
	step := v.Header.Step + 1
	align := uint32(r.IntN(3) * 16)
	v.Header = abi.Header{
		Magic: abi.Magic, HeaderSize: abi.HeaderSize, RecordStride: abi.RecordSize,
		DecisionStride: abi.DecisionSize, Step: step, NowNS: int64(step) * 1e7,
		TokenBudget: uint32(r.IntN(4000)), DecodeTokens: uint32(r.IntN(100)),
		ChunkMax: max(uint32(1+r.IntN(600)), align), ChunkAlign: align, DecisionsCap: most,
	}
	for range min(slots-len(v.Records), r.IntN(20)) {
		v.Records = append(v.Records, abi.Record{})
	}
	v.Changed = v.Changed[:0]
	percent := []int{0, 1, 5, 30, 100}[r.IntN(5)]
	for slot := range v.Records {
		if v.Records[slot].ID == 0 || r.IntN(100) < percent {
			q.change(&v.Records[slot])
			v.Changed = append(v.Changed, uint32(slot))
		}
	}
	v.Header.NSlots, v.Header.NChanged = uint32(len(v.Records)), uint32(len(v.Changed))
	return v
}

// change is progress, the end, or another request in the same slot.
func (q *table) change(record *abi.Record) {
	if record.RemainingPrefill > 0 && q.random.IntN(2) == 0 {
		record.RemainingPrefill -= uint32(q.random.IntN(int(record.RemainingPrefill)))
		return
	}
	q.nextID++
	*record = abi.Record{
		ID: q.nextID, ArrivalNS: q.view.Header.NowNS - int64(q.random.IntN(4))*1e7,
		State: abi.StateLive, RemainingPrefill: uint32(1 + q.random.IntN(900)),
	}
	switch q.random.IntN(8) {
	case 0:
		record.State = 0
	case 1:
		record.State |= abi.StateRunning | abi.StateDecoding
		record.RemainingPrefill = 0
	case 2:
		record.State |= abi.StateRunning
	case 3:
		record.RemainingPrefill = 0
	}
}

func TestRule(t *testing.T) {
	const seed = 7
	host := open(t)
	q := &table{random: rand.New(rand.NewPCG(seed, 0))}
	var out []abi.Decision
	for step := range 2000 {
		v := q.next()
		var err error
		if out, err = host.Decide(v, out[:0]); err != nil {
			t.Fatalf("seed %d, step %d: %v", seed, step, err)
		}
		if want := rule(v); !slices.Equal(out, want) {
			t.Fatalf("seed %d, step %d:\n got %v\nwant %v", seed, step, out, want)
		}
	}
}

// TestDecodesAreNeverListed: whatever waits, a running stream is not the policy's business.
func TestDecodesAreNeverListed(t *testing.T) {
	host := open(t)
	q := &table{random: rand.New(rand.NewPCG(8, 0))}
	for range 200 {
		v := q.next()
		out, err := host.Decide(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range out {
			if v.Records[d.Slot].State&abi.StateDecoding != 0 {
				t.Fatalf("slot %d is decoding and listed", d.Slot)
			}
		}
	}
}
