package plugins

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvrelay/engine/abi"
)

// trial is how a module answered a suite of made-up tables.
type trial struct {
	answers [][]abi.Decision
	fuel    []int64
	names   []string // of the tables
	bad     []string // answers that break a rule
	fault   *Fault   // ended the trial
	longest uint32   // chunk
	share   float64  // most of its fuel that a step used
}

// suite calls each with one made-up table after the other.
type suite func(slots, decisions int, cuts bool, each func(string, *abi.View) *Fault) *Fault

// trial runs a suite on a fresh sandbox.
func (g *generation) trial(run suite) trial {
	var t trial
	s, f := g.newSandbox()
	if f != nil {
		t.fault = f
		return t
	}
	defer s.close()
	g.swapped = true
	var j abi.Judge
	cuts := g.about.Flags&abi.DescSelects == 0
	t.fault = run(g.slots, g.capacity, cuts, func(name string, v *abi.View) *Fault {
		out, a, err := s.step(v, nil)
		if err != nil {
			panic("plugins: a made-up table: " + err.Error())
		}
		if a.fault != nil && !a.keep {
			a.fault.Detail += " (" + name + ")"
			return a.fault
		}
		t.names = append(t.names, name)
		t.answers = append(t.answers, out)
		t.fuel = append(t.fuel, a.fuel)
		t.share = max(t.share, float64(a.fuel)/float64(a.limit))
		for _, d := range out {
			if d.Action == abi.ActionRun && d.Tokens != abi.TokensAuto {
				t.longest = max(t.longest, d.Tokens)
			}
		}
		switch {
		case cuts:
			err = judgeCut(&j, v, out)
		default:
			err = j.Check(v, out, s.granted)
		}
		if err != nil && (!cuts || len(v.Preset) > 0) {
			t.bad = append(t.bad, fmt.Sprintf("%v (%s)", err, name))
		}
		return nil
	})
	return t
}

// differs names the first table at which two trials went different ways, "" if none.
func (t trial) differs(u trial) string {
	for i := range min(len(t.answers), len(u.answers)) {
		if !slices.Equal(t.answers[i], u.answers[i]) {
			return fmt.Sprintf("the answers to one table (%s) differ", t.names[i])
		}
		if t.fuel[i] != u.fuel[i] {
			return fmt.Sprintf("the fuel for one table (%s) differs: %d and %d",
				t.names[i], t.fuel[i], u.fuel[i])
		}
	}
	if len(t.answers) != len(u.answers) {
		return fmt.Sprintf("one run ended with a fault after %d tables, the other after %d",
			len(t.answers), len(u.answers))
	}
	return ""
}

// maxBad is how many broken answers a report tells of.
const maxBad = 5

// behaviour runs the suites, each twice, and once with the interpreter.
func (r *Report) behaviour(ctx context.Context, g *generation, c loader) {
	probed, broken := 0, 0
	suites := []suite{probes, extremes}
	c.interpreter = true
	twin := c.prepare(Spec{Wasm: g.module.Binary, Config: g.config, Limits: g.limits})
	defer twin.close()
	twin.module = g.module
	if f := twin.build(ctx, &c); f != nil {
		r.problem(codeInterpreter, "the interpreter refuses the module: %s", f.Detail)
		return
	}
	for _, run := range suites {
		first := g.trial(run)
		probed += len(first.answers)
		broken += len(first.bad)
		for _, bad := range first.bad[:min(len(first.bad), maxBad)] {
			r.problem(codeAnswer, "%s", bad)
		}
		if f := first.fault; f != nil {
			r.problem(codeFault, "%s in %s: %s", f.Class, f.Call, f.Detail)
		}
		if d := first.differs(g.trial(run)); d != "" {
			r.problem(codeRepeat, "two runs of one input are not equal: %s", d)
		}
		r.compare(first, twin.trial(run))
	}
	r.longQueue(ctx, g, c)
	text := fmt.Sprintf("%d probes: %d invalid plans", probed, broken)
	if r.OK() {
		text += " · two runs equal · compiler = interpreter"
	}
	r.line("behaviour", "%s", text)
}

// compare holds a compiled run against an interpreted one. The interpreter's stack is small; where
// it overflows nothing can be said.
func (r *Report) compare(compiled, interpreted trial) {
	if f := interpreted.fault; f != nil && f.Class == abi.FaultStack {
		r.warn("compiler and interpreter could not be compared: the module calls too deep")
		return
	}
	if d := compiled.differs(interpreted); d != "" {
		r.problem(codeInterpreter, "compiler and interpreter are not equal: %s", d)
	}
}

// longQueue sees whether the module can hold a queue as long as a busy engine's.
func (r *Report) longQueue(ctx context.Context, g *generation, c loader) {
	c.slots, c.interpreter = checkLongQueue, false
	long := c.prepare(Spec{Wasm: g.module.Binary, Config: g.config, Limits: g.limits})
	defer long.close()
	long.module = g.module
	if f := long.build(ctx, &c); f != nil {
		r.problem(codeCompile, "%s", f.Detail)
		return
	}
	t := long.trial(func(
		slots, decisions int, cuts bool, each func(string, *abi.View) *Fault,
	) *Fault {
		m := newMock(decisions)
		m.cuts = cuts
		return m.play(each, []turn{
			{fmt.Sprintf("%d requests", slots), func() { m.fill(slots) }},
			{"64 of them changed", func() { m.change(64) }},
		})
	})
	switch {
	case t.fault != nil && t.fault.Class == abi.FaultLoadInit:
		r.warn("with a queue of %d requests it cannot be loaded: %s", checkLongQueue,
			t.fault.Detail)
	case t.fault != nil:
		r.warn("with a queue of %d requests it faults: %s: %s", checkLongQueue, t.fault.Class,
			t.fault.Detail)
	case len(t.bad) > 0:
		r.problem(codeAnswer, "%s", t.bad[0])
	}
}
