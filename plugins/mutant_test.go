package plugins

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// mutantsEnv sets how many mutants TestMutants makes.
const mutantsEnv = "ENGINE_TEST_MUTANTS"

// seeds are the modules that mutants are made of.
func seeds(t testing.TB) [][]byte {
	all := [][]byte{shipped(t, "fcfs"), shipped(t, "sjf-aging")}
	names := []string{"waiting_only", "over_budget", "greets", "memory_grab", "aborts"}
	for _, name := range names {
		all = append(all, guestFile(t, name))
	}
	wat, err := os.ReadFile(filepath.Join("..", "abi", "guest", "wat", "fcfs.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, wat)
}

// alike are ranges of instructions that take and give the same types: i32 and i64 comparisons and
// arithmetic, loads, stores.
var alike = [][2]byte{{0x46, 0x4f}, {0x51, 0x5a}, {0x6a, 0x78}, {0x7c, 0x8a}, {0x2c, 0x2f},
	{0x30, 0x35}, {0x3a, 0x3b}, {0x3c, 0x3e}}

// mutate changes one to four instructions of a module in place: an operation becomes another of its
// type or any, a constant or index another, and now and then a byte any byte. Lengths stay as they
// are, so that many mutants are valid.
func mutate(wasm []byte, chance *rand.Rand) []byte {
	out := append([]byte(nil), wasm...)
	for range 1 + chance.IntN(4) {
		m, _ := lint.Check(out, lint.Limits{})
		if m == nil {
			break // Not well formed any more.
		}
		code := m.Bodies[chance.IntN(len(m.Bodies))].Code
		var list []lint.Instruction
		lint.Instructions(code, func(in lint.Instruction) { list = append(list, in) })
		in := list[chance.IntN(len(list))]
		raw := code[in.At:in.End]
		kin := slices.IndexFunc(alike, func(r [2]byte) bool {
			return raw[0] >= r[0] && raw[0] <= r[1]
		})
		switch {
		case kin >= 0 && chance.IntN(8) > 0:
			r := alike[kin]
			raw[0] = r[0] + byte(chance.IntN(int(r[1]-r[0])+1))
		case len(raw) > 1 && chance.IntN(8) > 0:
			i := 1 + chance.IntN(len(raw)-1)
			raw[i] = raw[i]&0x80 | byte(chance.IntN(0x80))
		case chance.IntN(8) == 0:
			raw[chance.IntN(len(raw))] = byte(chance.IntN(256))
		}
	}
	return out
}

// tinyLoader loads with little fuel, so that a mutant that loops is soon over.
func tinyLoader() *loader {
	return &loader{slots: 64, decisions: 16, log: slog.New(slog.DiscardHandler),
		drop: func(string, int) {}}
}

// live loads a module and, if it can be loaded, lets it decide on every made-up table. It says
// whether it was called at all.
func live(wasm []byte) bool {
	limits := Limits{InitFuel: 300_000, Fuel: 300_000}
	g, f := tinyLoader().load(context.Background(), Spec{Wasm: wasm, Limits: limits})
	if f != nil {
		return f.Call != ""
	}
	defer g.close()
	for _, s := range []suite{probes, extremes} {
		g.trial(s)
	}
	return true
}

// TestMutants: whatever becomes of a module, the host goes on, soon.
func TestMutants(t *testing.T) {
	n := 150
	if asked, err := strconv.Atoi(os.Getenv(mutantsEnv)); err == nil {
		n = asked
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	from := seeds(t)
	called, slowest := 0, time.Duration(0)
	for i := range n {
		mutant := mutate(from[i%len(from)], chance)
		begin := time.Now()
		if live(mutant) {
			called++
		}
		took := time.Since(begin)
		slowest = max(slowest, took)
		if took > 20*time.Second {
			t.Fatalf("mutant %d took %v", i, took)
		}
	}
	t.Logf("%d mutants, %d called, the slowest took %v", n, called, slowest)
	if called < n/10 {
		t.Errorf("only %d of %d were called", called, n)
	}
}

// FuzzLoad gives any bytes to a host.
func FuzzLoad(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Add(guestFile(f, "start_loop"))
	f.Add(guestFile(f, "foreign_import"))
	f.Fuzz(func(_ *testing.T, wasm []byte) { live(wasm) })
}

// FuzzAnswers gives any bytes to the host as a guest's answer: it reads them, and the judge has an
// opinion on them.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{}, int32(0))
	f.Add(make([]byte, 64), int32(4))
	b := newBench(f)
	b.use("quiet", guestFile(f, "quiet"))
	if _, err := b.decide(4); err != nil {
		f.Fatal(err)
	}
	s := b.order.current
	f.Fuzz(func(t *testing.T, raw []byte, n int32) {
		region, _ := s.bytes(abi.BufferDecisions)
		copy(region, raw)
		n = min(max(n, 0), int32(len(region)/abi.DecisionSize))
		out, fault := s.read(int(n), nil)
		if fault != nil || len(out) != int(n) {
			t.Fatalf("%d decisions of %d: %v", len(out), n, fault)
		}
		_ = Judge(&b.mock.view, out)
	})
}
