package plugins

import (
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

// everything is all capabilities.
const everything = 1<<11 - 1

// hears lets the active module hear so many tokens, in the given number of events, and decide.
func (b *bench) hears(tokens uint32, events int) ([]abi.Decision, error) {
	b.mock.change(0)
	v := b.mock.view
	v.Events = make([]abi.Event, events)
	for i := range v.Events {
		v.Events[i] = abi.Event{Kind: abi.EventFinished, Slot: 1, ID: uint64(i)}
	}
	if events > 0 {
		v.Events[0].Tokens = tokens - uint32(events-1)
		for i := range v.Events[1:] {
			v.Events[i+1].Tokens = 1
		}
	}
	return b.Decide(&v, nil)
}

// knows wants the active module to have heard so many tokens.
func (b *bench) knows(want uint16) {
	b.t.Helper()
	out, err := b.hears(0, 0)
	if err != nil || len(out) != 1 || out[0].Reason != want {
		b.t.Fatalf("%+v (%v), want the reason %d", out, err, want)
	}
}

// TestRegions: a module sees the tenants, the peers and the events of a step, as they are now.
func TestRegions(t *testing.T) {
	b := newBenchWith(t, Options{Offered: everything})
	b.use("remembers", guestFile(t, "remembers"))
	v := &b.mock.view
	v.Tenants = []abi.Tenant{{Index: 0, WeightMilli: 1000}, {Index: 1, WeightMilli: 30}}
	v.Peers = []abi.Peer{{Index: 1, FreePages: 5}, {Index: 2, FreePages: 2}}
	want := func(sum uint32) {
		t.Helper()
		out, err := b.decide(0)
		if err != nil || len(out) != 1 || out[0].Tokens != sum {
			t.Fatalf("%+v: %v; want the sum %d", out, err, sum)
		}
	}
	want(1037)
	v.Tenants[1].WeightMilli = 50
	v.Tenants = append(v.Tenants, abi.Tenant{Index: 2, WeightMilli: 400})
	want(1457)
	v.Peers = v.Peers[:1]
	want(1455)
	v.Tenants = v.Tenants[:1]
	want(1005)
	for _, events := range []int{1, 2, eventRows, eventRows + 1, 3*eventRows + 5} {
		if _, err := b.hears(uint32(events), events); err != nil {
			t.Fatal(err)
		}
	}
	b.knows(1 + 2 + eventRows + eventRows + 1 + 3*eventRows + 5)
	v.Tenants = make([]abi.Tenant, tenantRows+1)
	if _, err := b.decide(0); err != ErrTable {
		t.Errorf("%d tenants: %v", tenantRows+1, err)
	}
}

// TestNotGranted: what a host does not offer, a module does not get, and needs no room for.
func TestNotGranted(t *testing.T) {
	b := newBenchWith(t, Options{Offered: abi.CapChunkLengths | abi.CapLog})
	b.use("remembers", guestFile(t, "remembers"))
	b.mock.view.Tenants = []abi.Tenant{{WeightMilli: 1000}}
	b.mock.view.Peers = []abi.Peer{{Index: 1, FreePages: 5}}
	if _, err := b.hears(5, 1); err != nil {
		t.Fatal(err)
	}
	b.knows(0)
	if out, err := b.decide(0); err != nil || out[0].Tokens != 0 {
		t.Errorf("%+v: %v", out, err)
	}
	for kind := abi.BufferTenants; kind <= abi.BufferPeers; kind++ {
		if b.order.current.regions[kind].size != 0 {
			t.Errorf("region %d was asked for", kind)
		}
	}
	needs := Spec{Name: "needs", Wasm: guestFile(t, "requires_swap")}
	if _, err := b.Load(t.Context(), needs); err == nil ||
		!strings.Contains(err.Error(), "2 (swap)") {
		t.Errorf("a required capability that is not offered: %v", err)
	}
}

// TestObserveFaults: a guest that fails on an event is treated as one that fails to decide.
func TestObserveFaults(t *testing.T) {
	for tokens, want := range map[uint32]abi.FaultClass{
		82: abi.FaultTrap, 83: abi.FaultReturnedError,
	} {
		b := newBenchWith(t, Options{Offered: everything})
		b.use("remembers", guestFile(t, "remembers"))
		_, err := b.hears(tokens, 1)
		f, ok := err.(*Fault)
		if !ok || f.Class != want || f.Call != abi.ExportObserve ||
			!strings.HasSuffix(f.Detail, ": bad luck") {
			t.Errorf("%d tokens: %v", tokens, err)
		}
		b.settle()
		b.knows(0)
	}
}

// TestObserveFuel: pol_observe has a quarter of a decision's fuel, all of its calls together.
func TestObserveFuel(t *testing.T) {
	b := newBenchWith(t, Options{Offered: everything})
	wasm := guestFile(t, "remembers")
	_, err := b.Load(t.Context(), Spec{Name: "r", Wasm: wasm, Limits: Limits{Fuel: 40_000}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Activate("r"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.hears(200, 200); err != nil {
		t.Fatal(err)
	}
	_, err = b.hears(1000, 1000)
	if f, ok := err.(*Fault); !ok || f.Class != abi.FaultFuel || f.Call != abi.ExportObserve {
		t.Errorf("got %v", err)
	}
}

// TestHandOver: what a module knows goes to the next version of it at a swap, and back.
func TestHandOver(t *testing.T) {
	b := newBenchWith(t, Options{Offered: everything})
	wasm := guestFile(t, "remembers")
	b.use("one", wasm)
	if _, err := b.hears(5, 1); err != nil {
		t.Fatal(err)
	}
	b.use("two", wasm)
	b.knows(5)
	if _, err := b.hears(2000, 2); err != nil { // The state grows over the region's first size.
		t.Fatal(err)
	}
	b.settle()
	swap, err := b.Rollback()
	if err != nil || swap.State != "handed over, 10000 bytes" {
		t.Fatalf("%+v: %v", swap, err)
	}
	b.knows(2005)
	b.use("quiet", guestFile(t, "quiet")) // Another policy: nothing to give it.
	if last := b.seen.swaps[len(b.seen.swaps)-1]; last.State != "fresh" {
		t.Errorf("%+v", last)
	}
}

// TestHandOverFails: whatever goes wrong, the new module starts fresh and decides.
func TestHandOverFails(t *testing.T) {
	for tokens, want := range map[uint32]string{
		77: "fresh: trap in pol_load: ", 78: "fresh: returned_error in pol_load: it returned -2",
		79: "fresh: trap in pol_save: ", 80: "fresh: returned_error in pol_save: it returned -1",
		81: "fresh: bad_output in pol_save: a state of 2000000 bytes; at most 1048576",
	} {
		b := newBenchWith(t, Options{Offered: everything})
		wasm := guestFile(t, "remembers")
		b.use("one", wasm)
		if _, err := b.Load(t.Context(), Spec{Name: "two", Wasm: wasm}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.hears(tokens, 1); err != nil {
			t.Fatal(err)
		}
		b.settle()
		swap, err := b.Activate("two")
		if err != nil || !strings.HasPrefix(swap.State, want) {
			t.Errorf("%d: state %q (%v), want %q", tokens, swap.State, err, want)
		}
		b.settle()
		b.knows(0)
	}
}
