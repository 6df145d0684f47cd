package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/fuel"
	"github.com/kvrelay/engine/plugins/lint"
)

// loader turns files into generations.
type loader struct {
	slots, decisions int
	offered          uint64 // capabilities; 0 means abi.CapsOffered
	log              *slog.Logger
	drop             func(policy string, lines int)
	compiler         compiler
	interpreter      bool // run without compiling, to compare
	traced           bool // the module says where it is, to find the place of a trap
	keeps            bool // sandboxes keep what they are shown
}

// load does everything that can be done before a module decides. The generation it returns has one
// sandbox that no made-up table ever touched.
func (l *loader) load(ctx context.Context, s Spec) (*generation, *Fault) {
	g := l.prepare(s)
	if f := g.check(s.Wasm); f != nil {
		return nil, f
	}
	if f := g.build(ctx, l); f != nil {
		g.close()
		return nil, f
	}
	if f := g.try(); f != nil {
		g.close()
		return nil, f
	}
	s0, f := g.newSandbox()
	if f != nil {
		g.close()
		return nil, f
	}
	g.keeps = l.keeps
	s0.keepInput()
	g.current, g.module = s0, nil
	return g, nil
}

// prepare makes a generation that knows only what the operator said.
func (l *loader) prepare(s Spec) *generation {
	sum := sha256.Sum256(s.Wasm)
	config := s.Config
	if len(config) == 0 {
		config = []byte("{}")
	}
	g := &generation{
		spec: s, name: s.Name, version: s.Version, label: label(s.Name, s.Version),
		digest: hex.EncodeToString(sum[:]), limits: s.Limits.withDefaults(), config: config,
		slots: l.slots, capacity: l.decisions, offered: l.offered, boxes: map[string]*sandbox{},
	}
	if g.offered == 0 {
		g.offered = abi.CapsOffered
	}
	g.lines = &lines{log: l.log, policy: g.label, most: g.limits.LogLines, drop: l.drop,
		now: time.Now}
	return g
}

// check judges what can be judged without running anything.
func (g *generation) check(wasm []byte) *Fault {
	m, found := lint.Check(wasm, g.limits.Module)
	if m == nil {
		return g.refused(abi.FaultLoadLint, lintProblems(found))
	}
	g.module = m
	if problems := linkProblems(m, false); len(problems) > 0 {
		return g.refused(abi.FaultLoadLink, problems)
	}
	if problem := configProblem(g.config, g.limits.ConfigBytes); problem != "" {
		return g.fault(abi.FaultLoadInit, "", "%s", problem)
	}
	return nil
}

// configProblem says what is wrong with a module's settings, "" if nothing is.
func configProblem(config []byte, limit int) string {
	var object map[string]json.RawMessage
	if len(config) > limit {
		return fmt.Sprintf("the settings are %d bytes; at most %d are allowed", len(config), limit)
	}
	if err := json.Unmarshal(config, &object); err != nil || object == nil {
		return fmt.Sprintf("the settings are not a JSON object: %v", err)
	}
	return ""
}

// refused is one fault for several problems: the first in full, and how many more.
func (g *generation) refused(class abi.FaultClass, problems []Problem) *Fault {
	p := problems[0]
	detail := p.Code + ": " + p.Text
	if p.Where != "" {
		detail += " (" + p.Where + ")"
	}
	for _, h := range p.Help {
		detail += "; " + h
	}
	if n := len(problems) - 1; n > 0 {
		detail += fmt.Sprintf("; and %d more, see engine policy check", n)
	}
	return g.fault(class, "", "%s", detail)
}

// build meters, compiles and links.
func (g *generation) build(ctx context.Context, l *loader) *Fault {
	metered, stats, err := fuel.Meter(g.module, g.limits.InitFuel)
	if err == nil && l.traced {
		metered, err = fuel.Trace(g.module, g.limits.InitFuel)
	}
	if err != nil {
		return g.fault(abi.FaultLoadLint, "", "%v", err)
	}
	g.stats = stats
	g.globals, g.whole = fuel.States(g.module)
	g.runtimeInside = slices.ContainsFunc(g.module.Imports, func(i lint.Import) bool {
		return i.Module == abi.ModuleWasiSnapshotPreview1
	})
	if l.interpreter {
		err = g.compile(ctx, wazero.NewRuntimeConfigInterpreter(), metered)
	} else {
		err = g.translate(ctx, l.compiler, metered)
	}
	if err != nil {
		return g.fault(abi.FaultLoadCompile, "", "%s", shorten(err.Error()))
	}
	if err := g.link(ctx); err != nil {
		return g.fault(abi.FaultLoadLink, "", "%v", err)
	}
	return nil
}

// compile makes the runtime and compiles the module in it, or takes it from the cache.
func (g *generation) compile(
	ctx context.Context, config wazero.RuntimeConfig, wasm []byte,
) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the runtime failed: %v", r)
		}
	}()
	config = config.WithMemoryLimitPages(uint32(g.limits.MemoryPages)).WithDebugInfoEnabled(false)
	g.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	g.compiled, err = g.runtime.CompileModule(ctx, wasm)
	return err
}
