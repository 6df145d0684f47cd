package scheduler

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// fieldWorld is two requests that wait, A in slot 0 and B in slot 1, and whatever a variation makes
// of them before a policy decides by one field.
type fieldWorld struct {
	o        Options
	costs    StepCosts
	requests [2]Request
	s        *Scheduler
	policy   *fieldPolicy
	now      time.Duration
	// before runs when both have been submitted.
	before func()
}

// fieldPolicy decides by one field of one record of the ABI: it runs A, unless the field tells it
// to run B. Until it is armed it runs what leads says.
type fieldPolicy struct {
	record reflect.Type
	field  int
	base   reflect.Value // Of a header's field, as it was without the variation.
	armed  bool
	leads  map[uint64]uint32 // Tokens by ID; nobody else runs.
	saw    reflect.Value
}

func (p *fieldPolicy) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	if !p.armed {
		for slot := range v.Records {
			r := &v.Records[slot]
			tokens := p.leads[r.ID]
			if r.State == 0 || tokens == 0 || r.State&abi.StateDecoding != 0 {
				continue
			}
			out = append(out, abi.Decision{Slot: uint32(slot), IDLow: uint32(r.ID),
				Tokens: min(tokens, max(r.RemainingPrefill, 1))})
		}
		return out, nil
	}
	pick := 0
	if p.second(v) {
		pick = 1
	}
	r := &v.Records[pick]
	return append(out, abi.Decision{Slot: uint32(pick), IDLow: uint32(r.ID),
		Tokens: abi.TokensAuto}), nil
}

// second reports whether the field speaks for B.
func (p *fieldPolicy) second(v *abi.View) bool {
	if p.record == reflect.TypeFor[abi.Header]() {
		p.saw = reflect.ValueOf(v.Header).Field(p.field)
		return p.base.IsValid() && !p.saw.Equal(p.base)
	}
	of := func(slot int) reflect.Value {
		r := &v.Records[slot]
		row := reflect.ValueOf(*r)
		switch p.record {
		case reflect.TypeFor[abi.Tenant]():
			row = reflect.ValueOf(v.Tenants[r.Tenant])
		case reflect.TypeFor[abi.Peer]():
			row = reflect.Zero(p.record)
			if r.Peer > 0 {
				row = reflect.ValueOf(v.Peers[r.Peer-1])
			}
		}
		return row.Field(p.field)
	}
	a, b := of(0), of(1)
	if a.CanInt() {
		return b.Int() > a.Int()
	}
	return b.Uint() > a.Uint()
}

// lead runs a step in which the named requests compute so many tokens.
func (w *fieldWorld) lead(tokens map[uint64]uint32) {
	w.policy.leads = tokens
	w.step()
}

func (w *fieldWorld) step() *Plan {
	w.now += time.Millisecond
	p := w.s.Plan(w.now, w.costs)
	w.s.Commit(p, make([]int32, len(p.Samples)), w.now)
	return p
}

func (w *fieldWorld) submit(r Request) {
	if err := w.s.Submit(r); err != nil {
		panic(err)
	}
}

// third submits another request and runs as much of it.
func (w *fieldWorld) third(r Request, tokens uint32) {
	r.ID, r.MaxNew = 77, 5
	if r.Prompt == nil {
		r.Prompt = []int32{7, 7, 7, 7, 7, 7}
	}
	w.submit(r)
	if tokens > 0 {
		w.lead(map[uint64]uint32{77: tokens})
	}
}

// decision plays a world and says what its last step computes.
func decision(t *testing.T, record reflect.Type, field int, base reflect.Value,
	vary func(*fieldWorld),
) (string, reflect.Value) {
	t.Helper()
	w := &fieldWorld{
		policy: &fieldPolicy{record: record, field: field, base: base},
		o: Options{PageSize: 4, Pages: 40, MaxModelLen: 64, PrefixPages: -1, Role: abi.RoleAll,
			Seed: 3, KVBytesPerToken: 100, Limits: Limits{MaxSeqs: 8, TokenBudget: 32,
				ChunkMax: 8, MaxQueue: 8, MaxPreempt: 2}},
		before: func() {},
		costs:  StepCosts{Peers: []Peer{{Index: 1}, {Index: 2}}},
	}
	for i := range w.requests {
		prompt := make([]int32, 16)
		for k := range prompt {
			prompt[k] = int32(k)
		}
		w.requests[i] = Request{ID: SequenceID(1), Prompt: prompt, MaxNew: 4, Arrival: 1, End: 12}
	}
	w.requests[0].ID = 2 // The field id alone makes B's the larger one.
	vary(w)
	s, err := New(w.o, w.policy)
	if err != nil {
		t.Fatal(err)
	}
	w.s = s
	w.submit(w.requests[0])
	w.submit(w.requests[1])
	w.before()
	w.policy.armed = true
	p := w.step()
	if p.Decision.Fallback {
		t.Fatalf("%s: %v", record.Field(field).Name, p.Decision.Err)
	}
	out := ""
	for _, c := range p.Chunks {
		if !c.Decode {
			out += fmt.Sprint(c)
		}
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	return out, w.policy.saw
}

// exempt are the fields that no scheduler fills, and who does.
var exempt = map[string]string{
	"Header.Magic": "constant", "Header.Minor": "constant", "Header.HeaderSize": "constant",
	"Header.RecordStride": "constant", "Header.DecisionStride": "constant",
	"Header.RecordsPtr": "sandbox", "Header.ChangedPtr": "sandbox",
	"Header.DecisionsPtr": "sandbox", "Header.TenantsPtr": "sandbox",

	"Header.PeersPtr": "sandbox", "Header.NPreset": "sandbox",
	"Record.Adapter": "reserved",
}

// TestDecisionsChangeWithEveryField: for each field of each record there is a variation of what the
// field is made of, and of nothing that another field than its kin shows, with which a policy that
// looks at this field alone decides otherwise. A field without one fails.
func TestDecisionsChangeWithEveryField(t *testing.T) {
	variations := fieldVariations()
	used := 0
	for _, record := range []reflect.Type{reflect.TypeFor[abi.Header](),
		reflect.TypeFor[abi.Record](), reflect.TypeFor[abi.Tenant](), reflect.TypeFor[abi.Peer]()} {
		for field := range record.NumField() {
			name := record.Name() + "." + record.Field(field).Name
			vary, there := variations[name]
			if _, none := exempt[name]; none == there {
				t.Errorf("%s: varied %t, exempt %t", name, there, none)
			}
			if !there {
				continue
			}
			used++
			plain := func(*fieldWorld) {}
			if vary.plain != nil {
				plain = vary.plain
			}
			without, base := decision(t, record, field, reflect.Value{}, plain)
			with, saw := decision(t, record, field, base, vary.vary)
			if without == with {
				t.Errorf("%s: the policy decides %s with and without (%v, %v)", name, with, base,
					saw)
			}
		}
	}
	if used != len(variations) {
		t.Errorf("%d of %d variations belong to a field", used, len(variations))
	}
}
