package plugins

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

// withFlags is a module whose descriptor has other flags.
func withFlags(t testing.TB, wasm []byte, flags byte) []byte {
	t.Helper()
	at := bytes.Index(wasm, []byte("POL1\x40\x00"))
	if at < 0 {
		t.Fatal("the module has no descriptor")
	}
	out := slices.Clone(wasm)
	out[at+12] = flags
	return out
}

// load loads a module without activating it.
func (b *bench) load(name string, wasm []byte) {
	b.t.Helper()
	if _, err := b.Load(b.t.Context(), Spec{Name: name, Wasm: wasm}); err != nil {
		b.t.Fatal(err)
	}
}

// composed is a bench where one module selects and ones sets the chunk lengths.
func composed(t *testing.T) *bench {
	b := newBench(t)
	b.load("first", withFlags(t, guestFile(t, "waiting_only"), abi.DescSelects))
	b.load("ones", guestFile(t, "ones"))
	if _, err := b.Compose("first", "ones"); err != nil {
		t.Fatal(err)
	}
	b.mock.fill(40)
	return b
}

// TestCompose: the order is the first module's, the chunk lengths the second's, and both are
// counted for themselves.
func TestCompose(t *testing.T) {
	b := composed(t)
	alone := newBench(t)
	alone.use("whole", guestFile(t, "waiting_only"))
	for range 20 {
		out, err := b.decide(5)
		if err != nil || len(out) == 0 {
			t.Fatalf("%v: %v", out, err)
		}
		want, err := alone.Decide(&b.mock.view, nil)
		if err != nil || len(want) != len(out) {
			t.Fatal(err)
		}
		for i, d := range out {
			if d.Tokens != 1 || want[i].Tokens == 1 {
				t.Fatalf("entry %d: %+v, alone %+v", i, d, want[i])
			}
			want[i].Tokens = 1
		}
		if !slices.Equal(out, want) {
			t.Fatalf("%v\nwant %v", out, want)
		}
		if b.seen.last.Policy != "ones@1.0.0" || b.seen.last.Fallback {
			t.Fatalf("%+v", b.seen.last)
		}
	}
	if got := b.listed(); got != "first#1 select, ones#2 chunk" {
		t.Error(got)
	}
	for _, s := range b.List() {
		if s.Calls != 20 || s.Faults != 0 {
			t.Errorf("%+v", s)
		}
	}
	if b.seen.calls != 40 || b.seen.fell != 0 {
		t.Errorf("%d calls, %d fell back", b.seen.calls, b.seen.fell)
	}
}

// TestCutterFaults: whatever the second module does wrong is its own fault; the order stands, and
// the engine cuts.
func TestCutterFaults(t *testing.T) {
	for budget, want := range map[uint32]abi.FaultClass{
		7: abi.FaultBadOutput, 8: abi.FaultBadOutput, 9: abi.FaultBadOutput,
		10: abi.FaultBadOutput, 11: abi.FaultTrap, 12: abi.FaultReturnedError,
	} {
		b := composed(t)
		sound, err := b.decide(5)
		if err != nil {
			t.Fatal(err)
		}
		first := order(sound)
		b.mock.view.Header.TokenBudget = budget
		out, err := b.decide(0)
		if err != nil || !slices.Equal(order(out), first) {
			t.Fatalf("budget %d: %v, want the order %v (%v)", budget, out, first, err)
		}
		for _, d := range out {
			if d.Tokens != abi.TokensAuto {
				t.Fatalf("budget %d: %+v", budget, d)
			}
		}
		if len(b.seen.faults) != 1 || b.seen.faults[0].Class != want ||
			b.seen.faults[0].Policy != "ones@1.0.0" {
			t.Errorf("budget %d: %v", budget, b.seen.faults)
		}
		b.chunk.builders.Wait()
		b.mock.view.Header.TokenBudget = 100
		if out, err = b.decide(3); err != nil || out[0].Tokens != 1 {
			t.Errorf("budget %d: afterwards %v: %v", budget, out, err)
		}
		sameTable(t, b.chunk.current, &b.mock.view, abi.FlagResync)
	}
}

// TestSelectorFaults: a bad order is the first module's fault alone, and the step the engine's.
func TestSelectorFaults(t *testing.T) {
	for _, name := range []string{"repeated_slot", "wrong_id", "trap"} {
		b := newBench(t)
		b.load("bad", guestFile(t, name))
		b.load("ones", guestFile(t, "ones"))
		if _, err := b.Compose("bad", "ones"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.decide(5); err == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
		if len(b.seen.faults) != 1 || !strings.HasPrefix(b.seen.faults[0].Policy, "bad") {
			t.Errorf("%s: %v", name, b.seen.faults)
		}
		if s := b.List(); s[1].Calls != 0 {
			t.Errorf("%s: the second module was asked", name)
		}
	}
}

// TestCutterSetAside: while the second module is not trusted the engine cuts, and on probation it
// is judged without acting.
func TestCutterSetAside(t *testing.T) {
	b := composed(t)
	b.SetRules(Rules{CleanSteps: 3})
	h := &b.mock.view.Header
	h.TokenBudget = 11
	for range 3 {
		b.chunk.builders.Wait()
		if _, err := b.decide(0); err != nil {
			t.Fatal(err)
		}
	}
	h.TokenBudget = 100
	b.chunk.builders.Wait()
	cut := func() uint32 {
		t.Helper()
		out, err := b.decide(1)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Tokens
	}
	if s := b.List()[1]; cut() != abi.TokensAuto || s.Breaker != Open || s.Calls != 3 {
		t.Fatalf("%+v", b.List()[1])
	}
	h.NowNS += int64(DefaultRules().Backoff)
	for range 3 {
		if cut() != abi.TokensAuto {
			t.Fatal("on probation it acts")
		}
	}
	if s := b.List()[1]; cut() != 1 || s.Breaker != Closed || s.Calls != 6 {
		t.Fatalf("%+v", b.List()[1])
	}
}

// TestParts: which module may do what follows from its descriptor, either part changes by itself,
// and going back goes back to both.
func TestParts(t *testing.T) {
	b := newBench(t)
	b.load("whole", shipped(t, "fcfs"))
	b.load("selects", withFlags(t, guestFile(t, "waiting_only"), abi.DescSelects))
	b.load("ones", guestFile(t, "ones"))
	b.load("other", guestFile(t, "ones"))
	refused := func(words string) func(Swap, error) {
		return func(_ Swap, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("got %v, want %q", err, words)
			}
		}
	}
	ok := func(to string) func(Swap, error) {
		return func(s Swap, err error) {
			t.Helper()
			if err != nil || s.To != to {
				t.Fatalf("%+v: %v", s, err)
			}
		}
	}
	refused("no module selects")(b.ActivatePart(PartChunk, "ones"))
	refused("lacks the flag selects")(b.Activate("ones"))
	refused("lacks the flag sets_chunks")(b.Activate("selects"))
	refused("it cannot be used as chunk")(b.Compose("whole", "selects"))
	refused("both parts at once")(b.Compose("whole", "whole"))
	refused(`no part "both"`)(b.ActivatePart("both", "ones"))
	ok("whole@1.0.0")(b.Activate("whole"))
	ok("whole@1.0.0+ones@1.0.0")(b.ActivatePart(PartChunk, "ones"))
	ok("selects@1.0.0+ones@1.0.0")(b.ActivatePart(PartSelect, "selects"))
	ok("selects@1.0.0+other@1.0.0")(b.ActivatePart(PartChunk, "other"))
	if got := b.listed(); got !=
		"whole#1 ready, selects#2 select, ones#3 previous, other#4 chunk" {
		t.Error(got)
	}
	ok("selects@1.0.0+ones@1.0.0")(b.Rollback())
	if _, err := b.decide(5); err != nil {
		t.Fatal(err)
	}
	ok("whole@1.0.0")(b.RollbackTo(t.Context(), 1))
	if b.chunk != nil || b.Unload("whole") == nil || b.Unload("other") != nil {
		t.Error("places")
	}
	ok("selects@1.0.0+other@1.0.0")(b.RollbackTo(t.Context(), 4)) // It is loaded again.
	refused("no swap 99")(b.RollbackTo(t.Context(), 99))
	var history []string
	for _, p := range b.History() {
		history = append(history, p.Policy)
	}
	if len(history) != 7 || history[0] != "selects@1.0.0+other@1.0.0" ||
		history[6] != "whole@1.0.0" {
		t.Errorf("%q", history)
	}
	b.SetRules(Rules{Keep: 2})
	if n := len(b.History()); n != 3 {
		t.Errorf("%d entries are kept", n)
	}
}

// TestLoadFor: a module that could not decide what it is loaded for changes nothing, and the wish
// is not a part of it when it is loaded again.
func TestLoadFor(t *testing.T) {
	b := newBench(t)
	b.use("whole", shipped(t, "fcfs"))
	b.load("mine", guestFile(t, "ones"))
	before := b.listed()
	selects := withFlags(t, guestFile(t, "waiting_only"), abi.DescSelects)
	for part, wasm := range map[Part][]byte{
		PartChunk: selects, PartWhole: selects, PartSelect: guestFile(t, "ones"),
		"both": shipped(t, "fcfs"),
	} {
		if _, err := b.Load(t.Context(), Spec{Name: "mine", Wasm: wasm, For: part}); err == nil {
			t.Errorf("%s: it was loaded", part)
		}
		if got := b.listed(); got != before {
			t.Errorf("%s: %s, before %s", part, got, before)
		}
	}
	spec := Spec{Name: "mine", Wasm: guestFile(t, "ones"), For: PartChunk}
	if _, err := b.Load(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ActivatePart(PartChunk, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := b.Resize(t.Context(), 2000, 200); err != nil {
		t.Error(err)
	}
}

// TestShippedCutter: sarathi cuts the answer of any other policy to its own budget.
func TestShippedCutter(t *testing.T) {
	b := newBench(t)
	b.load("vtc", shipped(t, "vtc"))
	b.load("sarathi", shipped(t, "sarathi"))
	if _, err := b.Compose("vtc", "sarathi"); err != nil {
		t.Fatal(err)
	}
	alone := newBench(t)
	alone.use("vtc", shipped(t, "vtc"))
	longer := 0
	for i := range 200 {
		b.mock.view.Header.DecodeTokens = 0
		b.mock.happen()
		out, err := b.decide(1 + i%20)
		if err != nil || len(b.seen.faults) > 0 {
			t.Fatalf("step %d: %v %v", i, err, b.seen.faults)
		}
		want, err := alone.Decide(&b.mock.view, nil)
		if err != nil || !slices.Equal(order(out), order(want)) {
			t.Fatalf("step %d: the order %v, alone %v (%v)", i, order(out), order(want), err)
		}
		sum, whole := 0, 0
		for k, d := range out {
			sum += int(d.Tokens)
			whole += int(want[k].Tokens)
		}
		if whole > 512 {
			longer++
		}
		if sum > 512+len(out) { // Its own budget, and a token for each that it does not reach.
			t.Fatalf("step %d: %d tokens", i, sum)
		}
	}
	if longer == 0 {
		t.Error("vtc alone never exceeds the budget: this shows nothing")
	}
}
