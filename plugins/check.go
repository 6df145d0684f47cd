package plugins

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// Report is what Check found: lines of facts, and what is wrong.
type Report struct {
	Lines    []Line    `json:"lines"`
	Warnings []string  `json:"warnings,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// Line is one fact, such as "exports" and the list of them.
type Line struct {
	Name string `json:"name"` // module, exports, imports, descriptor, memory, fuel, behaviour
	Text string `json:"text"`
}

// Problem is a reason to refuse the module, or a rule that its answers broke.
type Problem struct {
	Code  string   `json:"code"`            // P014
	Text  string   `json:"text"`            // what is wrong
	Where string   `json:"where,omitempty"` // function and offset, "" if none
	Help  []string `json:"help,omitempty"`
}

// OK says whether the module can be loaded.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

func (r *Report) line(name, format string, args ...any) {
	r.Lines = append(r.Lines, Line{Name: name, Text: fmt.Sprintf(format, args...)})
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (r *Report) problem(code, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{Code: code, Text: fmt.Sprintf(format, args...)})
}

// What a module is checked with: a table as most engines have it, and a long queue.
const (
	checkSlots     = 1000
	checkLongQueue = 10_000
	checkDecisions = 256
)

// Check finds all problems of a module without loading it into a host: its size, exports, imports,
// descriptor, memory, the growth by metering, its behaviour on made-up tables, whether two runs
// decide equally and whether compiler and interpreter do. It compiles in this process.
func Check(ctx context.Context, wasm []byte, config []byte, l Limits) Report {
	var r Report
	c := loader{slots: checkSlots, decisions: checkDecisions, log: slog.New(slog.DiscardHandler),
		drop: func(string, int) {}}
	g := c.prepare(Spec{Wasm: wasm, Config: config, Limits: l})
	defer g.close()
	m, found := lint.Check(wasm, g.limits.Module)
	if m == nil {
		r.Problems = lintProblems(found)
		return r
	}
	g.module = m
	r.form(g)
	if problem := configProblem(g.config, g.limits.ConfigBytes); problem != "" {
		r.problem(codeConfig, "%s", problem)
	}
	if r.Problems = append(r.Problems, linkProblems(m, true)...); !r.OK() {
		return r
	}
	if f := g.build(ctx, &c); f != nil {
		r.problem(codeCompile, "%s", f.Detail)
		return r
	}
	s, f := g.newSandbox()
	if f != nil {
		r.problem(codeInit, "%s: %s", orUnknown(f.Call, "instantiation"), f.Detail)
		return r
	}
	defer s.close()
	r.described(g)
	r.line("memory", "%s at start, limit %s", bytesText(int(s.memory.Size())),
		bytesText(g.limits.MemoryPages*pageBytes))
	r.line("fuel", "injected, module grows %.0f %%", 100*g.stats.Growth())
	r.behaviour(ctx, g, c)
	return r
}

// form tells of what the file holds.
func (r *Report) form(g *generation) {
	m := g.module
	r.line("module", "%s, sha256 %s…, %d functions, largest body %s, nesting %d",
		bytesText(len(m.Binary)), g.digest[:7], len(m.Functions), bytesText(m.LargestBody),
		m.Deepest)
	if limit := g.limits.withDefaults().Module.ModuleBytes; limit > 0 && len(m.Binary) > limit*4/5 {
		r.warn("the module has more than 80 %% of the %s it may have", bytesText(limit))
	}
	var have, want []string
	if e, ok := m.Export(abi.ExportMemory); ok && e.Kind == lint.ExportMemory {
		have = append(have, abi.ExportMemory)
	}
	for _, e := range exports() {
		if _, ok := m.Export(e.name); ok {
			have = append(have, e.name)
		}
	}
	r.line("exports", "%s", strings.Join(have, " "))
	for _, i := range m.Imports {
		want = append(want, i.Module+"."+i.Name)
	}
	r.line("imports", "%s", orUnknown(strings.Join(want, " "), "none"))
}

// described tells what the module says of itself.
func (r *Report) described(g *generation) {
	d := g.about
	text := []string{strings.TrimSpace(g.name + " " + g.version),
		fmt.Sprintf("ABI %d.%d", abi.Major, d.Minor)}
	for _, f := range []struct {
		bit  uint32
		says string
	}{
		{abi.DescSelects, "selects"}, {abi.DescSetsChunks, "sets chunk lengths"},
		{abi.DescWantsChanged, "wants changed list"}, {abi.DescStateless, "stateless"},
		{abi.DescMayFill, "host may fill the budget"},
	} {
		if d.Flags&f.bit != 0 {
			text = append(text, f.says)
		}
	}
	if d.CapsRequired != 0 {
		text = append(text, "requires "+abi.CapNames(d.CapsRequired))
	}
	if d.CapsOptional != 0 {
		text = append(text, "optional "+abi.CapNames(d.CapsOptional))
	}
	r.line("descriptor", "%s", strings.Join(text, " · "))
}

func orUnknown(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// bytesText is a size for people.
func bytesText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.3g KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%d B", n)
	}
}
