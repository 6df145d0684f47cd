package shipped

import (
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

// TestSharesSurviveASwap: vtc with other settings goes on with the counters of the one before. The
// tenant that had more waits; a copy that starts fresh would begin with it, which came first.
func TestSharesSurviveASwap(t *testing.T) {
	host, err := plugins.New(plugins.Options{Slots: 10, Decisions: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for name, settings := range map[string]string{"one": `{}`, "two": `{"output_weight": 3}`} {
		spec := plugins.Spec{Name: name, Wasm: module(t, "vtc"), Config: []byte(settings)}
		if _, err := host.Load(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	v := &abi.View{Header: abi.Header{
		Magic: abi.Magic, HeaderSize: abi.HeaderSize, RecordStride: abi.RecordSize,
		DecisionStride: abi.DecisionSize, TokenBudget: 100, ChunkMax: 100, MaxAdmit: 9,
		DecisionsCap: 10,
	}}
	tenants := []uint32{4, 4, 7}
	for i, tenant := range tenants {
		v.Records = append(v.Records, abi.Record{
			ID: uint64(i + 1), State: abi.StateLive, Tenant: tenant, PromptTokens: 100,
			RemainingPrefill: 100,
		})
	}
	next := func(policy string, changed ...uint32) uint64 {
		t.Helper()
		if policy != "" {
			if _, err := host.Activate(policy); err != nil {
				t.Fatal(err)
			}
		}
		v.Header.Step++
		v.Header.NSlots, v.Changed = uint32(len(v.Records)), changed
		v.Header.NChanged = uint32(len(changed))
		out, err := host.Decide(v, nil)
		if err != nil || len(out) != 1 {
			t.Fatalf("%v %v", out, err)
		}
		return v.Records[out[0].Slot].ID
	}
	if id := next("one", 0, 1, 2); id != 1 {
		t.Fatalf("request %d is first", id)
	}
	v.Records[0].State |= abi.StateRunning | abi.StateDecoding // Its prompt is done.
	v.Records[0].RemainingPrefill, v.Records[0].ServiceTokens = 0, 100
	v.Records[0].Generated = 1
	if id := next("two", 0); id != 3 {
		t.Errorf("after the swap request %d is next: the counters are lost", id)
	}
}
