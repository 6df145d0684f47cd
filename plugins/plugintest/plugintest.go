// Package plugintest is the conformance suite for policy modules: an author's own test calls Run
// and learns whether any engine of this ABI can be given the module.
package plugintest

import (
	"slices"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

// Options says how a module is tried. The zero value suits most.
type Options struct {
	Config []byte // settings for pol_init; nil is {}
	Seed   uint64 // of the made-up traffic
	Steps  int    // with requests arriving; 0 is 500
}

// Run tries a module: its form, imports and exports, its answers to made-up tables and to made-up
// traffic, whether it decides the same again, in another copy and after a resync, and whether it
// serves every request in the end.
func Run(t *testing.T, wasm []byte, o Options) {
	t.Helper()
	if o.Steps == 0 {
		o.Steps = 500
	}
	if !t.Run("check", func(t *testing.T) { check(t, wasm, o) }) {
		return // The rest needs a module that can be loaded.
	}
	t.Run("traffic", func(t *testing.T) { traffic(t, wasm, o) })
	t.Run("again", func(t *testing.T) { again(t, wasm, o) })
	t.Run("fresh copy", func(t *testing.T) { freshCopy(t, wasm, o) })
	t.Run("allocations", func(t *testing.T) { allocations(t, wasm, o) })
}

// check fails for whatever `engine policy check` would call a problem.
func check(t *testing.T, wasm []byte, o Options) {
	report := plugins.Check(t.Context(), wasm, o.Config, plugins.DefaultLimits())
	for _, l := range report.Lines {
		t.Logf("%s: %s", l.Name, l.Text)
	}
	for _, w := range report.Warnings {
		t.Logf("warning: %s", w)
	}
	for _, p := range report.Problems {
		t.Errorf("%s: %s %s %q", p.Code, p.Text, p.Where, p.Help)
	}
}

// slots is the size of the tables that traffic fills.
const slots = 200

// open loads a module into a host of its own and makes it active.
func open(t *testing.T, wasm []byte, o Options) *plugins.Host {
	t.Helper()
	h, err := plugins.New(plugins.Options{Slots: slots, Decisions: maxSeqs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	spec := plugins.Spec{Name: "policy", Wasm: wasm, Config: o.Config}
	if _, err := h.Load(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Activate("policy"); err != nil {
		t.Fatal(err)
	}
	return h
}

// decide asks for one step and judges the answer.
func decide(t *testing.T, h *plugins.Host, v *abi.View) []abi.Decision {
	t.Helper()
	out, err := h.Decide(v, nil)
	if err == nil {
		err = plugins.Judge(v, out)
	}
	if err != nil {
		t.Fatalf("step %d: %v", v.Header.Step, err)
	}
	return out
}

// traffic lets requests arrive for a while and then serves those that are left: all of them must
// get through.
func traffic(t *testing.T, wasm []byte, o Options) {
	h, table := open(t, wasm, o), NewTable(o.Seed, slots)
	var answer []abi.Decision
	for range o.Steps {
		answer = decide(t, h, table.Next(answer))
	}
	table.Arrivals = false
	for range 100 * slots {
		answer = decide(t, h, table.Next(answer))
		if table.Live() == 0 {
			return
		}
	}
	t.Errorf("%d of the requests are still there %d steps after the last arrived: the policy lets "+
		"them starve", table.Live(), 100*slots)
}

// again runs the same traffic twice and demands the same decisions.
func again(t *testing.T, wasm []byte, o Options) {
	one, two := open(t, wasm, o), open(t, wasm, o)
	a, b := NewTable(o.Seed, slots), NewTable(o.Seed, slots)
	var answer, same []abi.Decision
	for range o.Steps {
		va, vb := a.Next(answer), b.Next(answer)
		answer, same = decide(t, one, va), decide(t, two, vb)
		if !slices.Equal(answer, same) {
			t.Fatalf("step %d: two copies decide differently: %v and %v",
				va.Header.Step, answer, same)
		}
	}
}

// freshCopy makes the host believe now and then that an answer was bad, so that another copy must
// go on from the table alone.
func freshCopy(t *testing.T, wasm []byte, o Options) {
	h, table := open(t, wasm, o), NewTable(o.Seed, slots)
	var answer []abi.Decision
	fallbacks := 0
	for i := range o.Steps {
		v := table.Next(answer)
		v.Header.NowNS += int64(i) * 60_000_000_000 // Far apart, so that no fault sets it aside.
		out, err := h.Decide(v, nil)
		switch {
		case err == plugins.ErrWarming:
			fallbacks++
			answer = nil
			continue
		case err == nil:
			err = plugins.Judge(v, out)
		}
		if err != nil {
			t.Fatalf("step %d: %v", v.Header.Step, err)
		}
		if answer = out; i%50 == 49 {
			h.ReportFault(abi.FaultBadOutput, "made up by plugintest")
		}
	}
	t.Logf("%d steps without a copy", fallbacks)
}

// allocations: deciding allocates nothing in the host.
func allocations(t *testing.T, wasm []byte, o Options) {
	h, table := open(t, wasm, o), NewTable(o.Seed, slots)
	var answer []abi.Decision
	for range 50 {
		answer = decide(t, h, table.Next(answer))
	}
	out := make([]abi.Decision, 0, maxSeqs)
	v := table.Next(answer)
	n := testing.AllocsPerRun(100, func() {
		if _, err := h.Decide(v, out); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
