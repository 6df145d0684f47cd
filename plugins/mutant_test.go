package plugins

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

// fate is how far a mutant came.
type fate int

// The fates.
const (
	refused  fate = iota // by the lint or the linker
	accepted             // by those, and not by the compiler
	called               // at least once
	loaded               // it passed the trial at load, and then decided on extreme tables
	fates
)

// life is what became of a mutant: its fate, and the kind of what stopped it, "" if nothing did.
type life struct {
	fate fate
	kind string
}

// live loads a module as a host does and, if it can be loaded, lets it decide on extreme tables,
// hear events and hand over its state.
func live(wasm []byte, fuel int64, c compiler) life {
	limits := Limits{InitFuel: fuel, Fuel: fuel}
	l := loader{slots: 64, decisions: 16, offered: everything, compiler: c,
		log: slog.New(slog.DiscardHandler), drop: func(string, int) {}}
	g, f := l.load(context.Background(), Spec{Wasm: wasm, Limits: limits})
	if f != nil {
		end := life{fate: accepted, kind: kindOf(f)}
		if f.Call != "" {
			end.fate = called
		} else if f.Class == abi.FaultLoadLint || f.Class == abi.FaultLoadLink {
			end.fate = refused
		}
		return end
	}
	defer g.close()
	end := life{fate: loaded}
	hear := func(f *Fault) {
		if f != nil && end.kind == "" {
			end.kind = "loaded, then " + kindOf(f)
		}
	}
	hear(g.trial(extremes).fault)
	st, f := g.current.save()
	hear(f)
	if f == nil && st != nil && g.current.takes(g.current) {
		hear(g.current.load(st))
	}
	return end
}

// mutantsFolder holds mutants that a long run kept, one of each kind of end.
const mutantsFolder = "testdata/mutants"

// How large a mutant may be that is kept, so that one of each language can be, and all together.
const (
	keptBytes = 32 << 10
	allBytes  = 300 << 10
)

// keptName is the file of a mutant of a kind.
func keptName(kind string) string {
	return strings.NewReplacer(", ", "-", " ", "_").Replace(kind) + ".wasm"
}

// TestKeptMutants: what the long run found ends as it did then.
func TestKeptMutants(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(mutantsFolder, "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutants in %s: %v", mutantsFolder, err)
	}
	total := 0
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		total += len(wasm)
		if got := keptName(live(wasm, mutantFuel, compiler{}).kind); got != filepath.Base(file) {
			t.Errorf("%s ended as %s", file, got)
		}
	}
	if total > allBytes {
		t.Errorf("the kept mutants have %d bytes, more than %d", total, allBytes)
	}
}

// How many mutants the short run makes, and what says which ones.
const (
	fewMutants = 200
	seedEnv    = "ENGINE_TEST_MUTANTS_SEED"
	mutantEnv  = "ENGINE_TEST_MUTANT" // the long run's mutant of this number alone
)

// TestMutants: whatever becomes of a module, the host goes on. It makes few; TestMutantsApart, in
// mutants_linux_test.go, is the long run.
func TestMutants(t *testing.T) {
	k := kitchen{seed: rand.Uint64(), from: seeds(t), perByte: 50}
	if asked, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64); err == nil {
		k.seed = asked
	}
	first, end := 0, fewMutants
	if asked, err := strconv.Atoi(os.Getenv(mutantEnv)); err == nil {
		k, first, end = longKitchen(t, k.seed, t.TempDir()), asked, asked+1
	}
	t.Logf("seed %d: %s=%d makes the same mutants", k.seed, seedEnv, k.seed)
	changed := 0
	for i := first; i < end; i++ {
		m := k.make(i)
		l := live(m.wasm, m.fuel, compiler{})
		if l.fate >= called && !m.bytes {
			changed++
		}
		if end == first+1 {
			t.Logf("mutant %d, of %s: %+v", i, m.lang, l)
		}
	}
	if changed < (end-first)/10 {
		t.Errorf("only %d of %d were changed in instructions and called", changed, end-first)
	}
}

// longKitchen makes the mutants of the long run; Go's module is in the folder, or built there.
func longKitchen(t testing.TB, seed uint64, dir string) kitchen {
	large := goSeed(t, filepath.Join(dir, "go.wasm"))
	return kitchen{seed: seed, from: seeds(t), large: &large, perByte: 85}
}

// FuzzLoad gives any bytes to a host.
func FuzzLoad(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s.wasm)
	}
	f.Add(guestFile(f, "start_loop"))
	f.Add(guestFile(f, "foreign_import"))
	f.Fuzz(func(_ *testing.T, wasm []byte) { live(wasm, mutantFuel, compiler{}) })
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
