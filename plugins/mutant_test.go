package plugins

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// What the long run of TestMutants is asked for with: how many mutants, and the seed that makes the
// same ones again. mutantEnv makes one of them alone.
const (
	mutantsEnv = "ENGINE_TEST_MUTANTS"
	seedEnv    = "ENGINE_TEST_MUTANTS_SEED"
	mutantEnv  = "ENGINE_TEST_MUTANT"
)

// parent is a module that mutants are made of.
type parent struct {
	lang string
	wasm []byte
}

// seeds are the modules that mutants are made of, one of each language at least, but for Go's.
func seeds(t testing.TB) []parent {
	all := []parent{{"c", shipped(t, "fcfs")}, {"rust", shipped(t, "sjf-aging")},
		{"zig", shipped(t, "send-aware")}, {"assemblyscript", shipped(t, "tenant-quota")},
		{"c", shipped(t, "sarathi")}, {"rust", shipped(t, "vtc")},
		{"zig", shipped(t, "slo-chunk")}, {"assemblyscript", shipped(t, "tenant-quota")}}
	names := []string{"waiting_only", "over_budget", "greets", "memory_grab", "aborts",
		"remembers", "ones"}
	for _, name := range names {
		all = append(all, parent{"wat", guestFile(t, name)})
	}
	wat, err := os.ReadFile(filepath.Join("..", "abi", "guest", "wat", "fcfs.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, parent{"wat", wat})
}

// goSeed builds a module by Go's compiler; it is too large to be kept.
func goSeed(t testing.TB) parent {
	out := filepath.Join(t.TempDir(), "go.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath",
		"-ldflags=-s -w", "-o", out, "./testdata/goguest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the Go module: %v\n%s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return parent{"go", wasm}
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
		case len(raw) > 1 && chance.IntN(4) > 0:
			// What another instruction of its kind has is more often valid than any number.
			peer := list[chance.IntN(len(list))]
			if peer.Op == in.Op && peer.End-peer.At == len(raw) {
				copy(raw, code[peer.At:peer.End])
			} else if chance.IntN(4) == 0 {
				raw[1+chance.IntN(len(raw)-1)] ^= byte(1 << chance.IntN(4))
			}
		case len(raw) > 1 && chance.IntN(4) > 0:
			i := 1 + chance.IntN(len(raw)-1)
			raw[i] = raw[i]&0x80 | byte(chance.IntN(0x80))
		case chance.IntN(8) == 0:
			raw[chance.IntN(len(raw))] = byte(chance.IntN(256))
		}
	}
	return out
}

// scatter changes one to eight bytes anywhere.
func scatter(wasm []byte, chance *rand.Rand) []byte {
	out := append([]byte(nil), wasm...)
	for range 1 + chance.IntN(8) {
		out[chance.IntN(len(out))] = byte(chance.IntN(256))
	}
	return out
}

// tinyLoader loads with little fuel, so that a mutant that loops is soon over.
func tinyLoader() *loader {
	return &loader{slots: 64, decisions: 16, offered: everything,
		log: slog.New(slog.DiscardHandler), drop: func(string, int) {}}
}

// fate is how far a mutant came.
type fate int

// The fates.
const (
	refused  fate = iota // by the lint or the linker
	accepted             // by those, and not by the compiler
	called               // at least once
	loaded               // it passed the trial at load, and then decided on every made-up table
	fates
)

// live loads a module and, if it can be loaded, lets it decide on every made-up table, hear events
// and hand over its state.
func live(wasm []byte, fuel int64) fate {
	limits := Limits{InitFuel: fuel, Fuel: fuel}
	g, f := tinyLoader().load(context.Background(), Spec{Wasm: wasm, Limits: limits})
	switch {
	case f == nil:
	case f.Call != "":
		return called
	case f.Class == abi.FaultLoadLint || f.Class == abi.FaultLoadLink:
		return refused
	default:
		return accepted
	}
	defer g.close()
	for _, s := range []suite{probes, extremes} {
		g.trial(s)
	}
	if st, f := g.current.save(); f == nil && st != nil && g.current.takes(g.current) {
		g.current.load(st)
	}
	return loaded
}

// The bounds of a mutant.
const (
	mutantTime = time.Minute // on a busy machine; one of Go's, which takes seconds to compile:
	largeTime  = 5 * time.Minute
	mutantRoom = 512 << 20 // bytes that the whole run may grow by
)

// tally counts mutants by language, by whether instructions or bytes were changed, and by fate.
type tally map[string]*[2][fates]int

func (c tally) add(lang string, kind int, f fate) {
	if c[lang] == nil {
		c[lang] = new([2][fates]int)
	}
	c[lang][kind][f]++
}

// total is how many mutants whose instructions were changed came at least so far.
func (c tally) total(lang string, least fate) (n int) {
	for l, counts := range c {
		for f := least; f < fates; f++ {
			if lang == "" || l == lang {
				n += counts[0][f]
			}
		}
	}
	return n
}

func (c tally) report(t *testing.T) {
	for _, lang := range slices.Sorted(maps.Keys(c)) {
		for i, kind := range []string{"instructions", "bytes"} {
			n := c[lang][i]
			t.Logf("%-14s %-12s %8d made: %8d refused, %7d not compiled, %7d called, "+
				"%7d loaded", lang, kind, n[0]+n[1]+n[2]+n[3], n[0], n[1], n[2], n[3])
		}
	}
}

// kitchen makes mutants by their number.
type kitchen struct {
	seed    uint64
	from    []parent
	large   *parent // Go's module: one mutant in 300
	perByte int     // so many in ten change bytes
}

// mutant makes one mutant: the same number, the same mutant.
func (k *kitchen) mutant(i int) (wasm []byte, lang string, kind int, fuel int64) {
	chance := rand.New(rand.NewPCG(k.seed, uint64(i)))
	fuel = 300_000
	p := k.from[chance.IntN(len(k.from))]
	if k.large != nil && i%300 == 0 {
		p, fuel = *k.large, 60_000_000
		return changed(p.wasm, chance), p.lang, 0, fuel
	}
	if chance.IntN(10) < k.perByte {
		return scatter(p.wasm, chance), p.lang, 1, fuel
	}
	return changed(p.wasm, chance), p.lang, 0, fuel
}

// changed is a mutant whose instructions differ from its parent's.
func changed(wasm []byte, chance *rand.Rand) []byte {
	for {
		if out := mutate(wasm, chance); !bytes.Equal(out, wasm) {
			return out
		}
	}
}

// TestMutants: whatever becomes of a module, the host goes on, soon, and grows by little. By
// default it makes few; ENGINE_TEST_MUTANTS=1000000 is the long run, with a Go module among the
// seeds.
func TestMutants(t *testing.T) {
	n, k := 200, kitchen{seed: rand.Uint64(), from: seeds(t), perByte: 5}
	if asked, err := strconv.Atoi(os.Getenv(mutantsEnv)); err == nil {
		large := goSeed(t)
		n, k.large = asked, &large
	}
	if asked, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64); err == nil {
		k.seed = asked
	}
	first := 0
	if asked, err := strconv.Atoi(os.Getenv(mutantEnv)); err == nil {
		first, n = asked, asked+1
	}
	t.Logf("seed %d: %s=%d makes the same mutants, %s=N the Nth alone", k.seed, seedEnv, k.seed,
		mutantEnv)
	counts, before := tally{}, resident()
	var slowest time.Duration
	begin := time.Now()
	for i := first; i < n; i++ {
		wasm, lang, kind, fuel := k.mutant(i)
		start := time.Now()
		counts.add(lang, kind, live(wasm, fuel))
		took := time.Since(start)
		slowest = max(slowest, took)
		if took > largeTime || took > mutantTime && lang != "go" {
			t.Fatalf("mutant %d of seed %d took %v", i, k.seed, took)
		}
		if i%1000 == 999 {
			if grown := resident() - before; grown > mutantRoom {
				t.Fatalf("at mutant %d of seed %d the process has grown by %d MiB", i, k.seed,
					grown>>20)
			}
		}
		if i%50_000 == 49_999 {
			t.Logf("%d mutants in %v, %d called", i+1, time.Since(begin).Round(time.Second),
				counts.total("", called))
			fmt.Fprintf(os.Stderr, "%d mutants in %v: %d changed in instructions and called, "+
				"%d of Go\n", i+1, time.Since(begin).Round(time.Second),
				counts.total("", called), counts.total("go", called))
		}
	}
	counts.report(t)
	t.Logf("the slowest took %v; the process grew by %d MiB", slowest, (resident()-before)>>20)
	if got := counts.total("", called); got < (n-first)/10 {
		t.Errorf("only %d of %d were changed in instructions and called", got, n-first)
	}
}

// FuzzLoad gives any bytes to a host.
func FuzzLoad(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s.wasm)
	}
	f.Add(guestFile(f, "start_loop"))
	f.Add(guestFile(f, "foreign_import"))
	f.Fuzz(func(_ *testing.T, wasm []byte) { live(wasm, 300_000) })
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
