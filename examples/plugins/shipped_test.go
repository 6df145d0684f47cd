// Package shipped tests what holds for every shipped policy, and what each of them promises, in a
// running engine.
package shipped

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
	"github.com/kvrelay/engine/plugins/authortools"
	"github.com/kvrelay/engine/plugins/builtin"
	"github.com/kvrelay/engine/plugins/plugintest"
	"github.com/kvrelay/engine/plugins/policyfile"
)

var write = flag.Bool("write", false, "write the schemas anew")

// module is a shipped policy's module.
func module(t testing.TB, name string) []byte {
	t.Helper()
	wasm, ok := builtin.Module(name)
	if !ok {
		t.Fatalf("there is no policy %s", name)
	}
	return wasm
}

// TestConformance: every shipped policy passes the suite that any module must pass.
func TestConformance(t *testing.T) {
	for _, name := range builtin.Names() {
		t.Run(name, func(t *testing.T) {
			plugintest.Run(t, module(t, name), plugintest.Options{Seed: 3, Steps: 150})
		})
	}
}

// TestCases: the cases beside each policy's source, and made-up tables.
func TestCases(t *testing.T) {
	for _, name := range builtin.Names() {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(name + "/tests"); err != nil {
				t.Fatalf("it has no cases: %v", err)
			}
			cases, err := authortools.ReadCases(name)
			if err != nil {
				t.Fatal(err)
			}
			verdicts, err := authortools.RunCases(t.Context(), module(t, name), cases)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range verdicts {
				if !v.OK() {
					t.Errorf("%s: %s: %s\n%q", v.Where, v.Name, v.Why, v.Table)
				}
			}
			f, err := authortools.Fuzz(t.Context(), module(t, name), authortools.FuzzOptions{
				Seed: 5, States: 1500, Longest: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			if f.Bad != nil {
				t.Errorf("%s\n%s\n%q", f.Bad.Why, f.Bad.Text, f.Bad.Steps)
			}
		})
	}
}

// TestSchemas: the JSON schema beside each policy is what its policy.toml gives. With -write it is
// written.
func TestSchemas(t *testing.T) {
	for _, name := range builtin.Names() {
		file, err := policyfile.Read(name + "/policy.toml")
		if err != nil {
			t.Fatal(err)
		}
		schema, path := authortools.Schema(file), name+"/policy.schema.json"
		if *write {
			if err := os.WriteFile(path, schema, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, schema) {
			t.Errorf("%s is not what policy.toml gives (%v): go test ./examples/plugins -run "+
				"TestSchemas -args -write", path, err)
		}
	}
}

// crowd is how many requests wait in TestFuel.
const crowd = 10_000

// crowded is a table of many waiting requests and a few running ones, of many tenants and groups.
func crowded(seed uint64) *abi.View {
	chance := rand.New(rand.NewPCG(seed, 1))
	v := &abi.View{Header: abi.Header{
		NowNS: int64(time.Hour), Role: abi.RoleAll, PageTokens: 16, TokenBudget: 8192,
		ChunkMax: 2048, ChunkAlign: 16, MaxSeqs: 128, MaxAdmit: 8, FreePages: 4000,
		TotalPages: 8192, ReservePages: 200, DecisionsCap: 160, KVBytesPerToken: 4096,
		CostFixedUS: 2000, CostTokenNS: 20_000, CostCtxPS: 500, LinkBytesPerUS: 1000,
		SendBacklogBytes: 10 << 30,
	}}
	for i := range uint64(1025) {
		v.Tenants = append(v.Tenants, abi.Tenant{
			Index: uint32(i), WeightMilli: uint32(500 + i), MaxSeqs: uint32(i % 3),
		})
	}
	for slot := range crowd + 120 {
		v.Records = append(v.Records, request(chance, uint64(slot+1), slot%85 == 0))
		v.Changed = append(v.Changed, uint32(slot))
	}
	return v
}

func request(chance *rand.Rand, id uint64, runs bool) abi.Record {
	prompt := uint32(1 + chance.IntN(8000))
	r := abi.Record{
		ID: id, State: abi.StateLive, PromptTokens: prompt, RemainingPrefill: prompt, MaxNew: 100,
		ArrivalNS:  int64(time.Hour) - chance.Int64N(int64(time.Minute)),
		DeadlineNS: int64(time.Hour) + chance.Int64N(int64(time.Minute)),
		Priority:   int32(chance.IntN(5)), Tenant: uint32(chance.IntN(1025)),
		PrefixHash: uint64(chance.IntN(50)), PagesNeeded: prompt/16 + 1,
		Kind: uint8(chance.IntN(2)),
	}
	if runs {
		r.State |= abi.StateRunning
		r.RemainingPrefill = 1 + uint32(chance.IntN(int(prompt)))
		r.PagesHeld = prompt/16 + 1
		if chance.IntN(2) == 0 {
			r.State |= abi.StateDecoding
			r.RemainingPrefill, r.Generated = 0, 1
		}
	}
	return r
}

// TestFuel: with ten thousand waiting every policy decides within its fuel: the first step, which
// shows them all, and steps in which some come, go and get on. None allocates then.
func TestFuel(t *testing.T) {
	for _, name := range builtin.Names() {
		t.Run(name, func(t *testing.T) {
			w, err := plugins.OpenWorkbench(t.Context(), plugins.Spec{Wasm: module(t, name)},
				plugins.WorkbenchOptions{Slots: crowd + 200, Decisions: 160})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			const seed = 9
			if err := underFuel(t, w, crowded(seed), rand.New(rand.NewPCG(seed, 2))); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

func underFuel(t *testing.T, w *plugins.Workbench, v *abi.View, chance *rand.Rand) error {
	highest, memory := 0.0, int64(0)
	for step := range 12 {
		h := &v.Header
		h.Step++
		h.NowNS += int64(20 * time.Millisecond)
		h.LastStepUS = 20_000
		h.NSlots, h.NChanged = uint32(len(v.Records)), uint32(len(v.Changed))
		h.NTenants = uint32(len(v.Tenants))
		h.NWaiting, h.NRunning, h.DecodeTokens = 0, 0, 0
		for _, r := range v.Records {
			switch {
			case r.State&abi.StateRunning == 0:
				h.NWaiting++
			case r.State&abi.StateDecoding != 0:
				h.DecodeTokens++
				h.NRunning++
			default:
				h.NRunning++
			}
		}
		out, spent, err := w.Decide(v, nil)
		if err == nil {
			err = plugins.Judge(v, out)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		highest = max(highest, float64(spent.Fuel)/float64(spent.Limit))
		if memory > 0 && spent.Memory != memory {
			return fmt.Errorf("step %d: its memory grew from %d to %d bytes", step, memory,
				spent.Memory)
		}
		memory = spent.Memory
		v.Changed = v.Changed[:0]
		for slot := step % 7; slot < len(v.Records); slot += 300 {
			v.Records[slot] = request(chance, uint64(100_000*(step+1)+slot), slot%85 == 0)
			v.Changed = append(v.Changed, uint32(slot))
		}
	}
	t.Logf("at most %.0f %% of the fuel", highest*100)
	return nil
}
