package plugins

import (
	"fmt"
	"strings"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// The codes of what breaks the contract between module and host; package lint has those before.
const (
	codeUnknownImport = "P014" // an import that is not offered
	codeImportType    = "P024" // an import that is offered with another type
	codeMissingExport = "P030" // a required export is missing
	codeExportType    = "P031" // an export has another type than the ABI says
	codeConfig        = "P032" // the settings are not a JSON object, or too large
	codeCompile       = "P033" // the runtime refuses the module
	codeInit          = "P034" // start, descriptor, regions or pol_init
	codeAnswer        = "P040" // an answer breaks a rule
	codeFault         = "P041" // it traps or uses up its fuel on made-up tables
	codeRepeat        = "P042" // two runs of one input differ
	codeInterpreter   = "P043" // compiler and interpreter differ
)

// export is a function that the ABI knows, and whether a module must have it.
type export struct {
	name     string
	required bool
	typ      lint.FuncType
}

func exports() []export {
	i32, i64 := []lint.ValueType{lint.I32}, []lint.ValueType{lint.I64}
	two := []lint.ValueType{lint.I32, lint.I32}
	return []export{
		{abi.ExportABIV1, true, lint.FuncType{Results: i32}},
		{abi.ExportBuffer, true, lint.FuncType{Params: two, Results: i32}},
		{abi.ExportInit, true, lint.FuncType{Params: i32, Results: i32}},
		{abi.ExportDecide, true, lint.FuncType{Params: i32, Results: i32}},
		{abi.ExportLastError, false, lint.FuncType{Results: i64}},
		{abi.ExportObserve, false, lint.FuncType{Params: i32, Results: i32}},
		{abi.ExportSave, false, lint.FuncType{Params: i32, Results: i32}},
		{abi.ExportLoad, false, lint.FuncType{Params: two, Results: i32}},
		{abi.ExportInitialize, false, lint.FuncType{}},
	}
}

// linkProblems compares a module's imports and exports with the ABI. Tools are told the lines of
// its source, too; an engine never reads those.
func linkProblems(m *lint.Module, tools bool) []Problem {
	return append(importProblems(m, tools), exportProblems(m)...)
}

func importProblems(m *lint.Module, tools bool) []Problem {
	var problems []Problem
	for index, i := range m.Imports {
		have := m.Types[i.Type]
		found := false
		for _, f := range offered() {
			if f.module != i.Module || f.name != i.Name {
				continue
			}
			found = true
			if want := f.signature().String(); want != have.String() {
				problems = append(problems, Problem{Code: codeImportType, Text: fmt.Sprintf(
					`import "%s.%s" is %s, the host offers %s`, i.Module, i.Name, have, want)})
			}
		}
		if !found {
			problems = append(problems, Problem{
				Code:  codeUnknownImport,
				Text:  fmt.Sprintf(`unknown import "%s.%s" %s`, i.Module, i.Name, have),
				Where: calledFrom(m, uint32(index), tools), Help: importHelp(i.Module),
			})
		}
	}
	return problems
}

// calledFrom is where a module first calls a function, "" if nowhere.
func calledFrom(m *lint.Module, function uint32, tools bool) string {
	for _, b := range m.Bodies {
		at := -1
		lint.Instructions(b.Code, func(in lint.Instruction) {
			if at < 0 && in.Op == opCall && in.Index == function {
				at = b.Offset + in.At
			}
		})
		if at < 0 {
			continue
		}
		line := ""
		if tools {
			line = lineAt(m, at)
		}
		return fmt.Sprintf("called from %s (%s)", functionAt(m, at),
			orUnknown(line, fmt.Sprintf("byte %#x", at)))
	}
	return ""
}

// opCall is the instruction that calls a function by its index.
const opCall = 0x10

// importHelp says what can be imported, and what to do about what cannot.
func importHelp(module string) []string {
	names := map[string][]string{}
	for _, f := range offered() {
		names[f.module] = append(names[f.module], f.name)
	}
	if strings.HasPrefix(module, "wasi") {
		return []string{fmt.Sprintf("ABI %d.%d offers of %s: %s", abi.Major, abi.Minor,
			abi.ModuleWasiSnapshotPreview1,
			strings.Join(names[abi.ModuleWasiSnapshotPreview1], ", ")),
			"there are no files and no network: build for wasm32-unknown-unknown, freestanding"}
	}
	help := []string{fmt.Sprintf("ABI %d.%d offers %s: %s; a small WASI subset; %s: %s", abi.Major,
		abi.Minor, abi.ModulePol, strings.Join(names[abi.ModulePol], ", "),
		abi.ModuleEnv, strings.Join(names[abi.ModuleEnv], ", "))}
	return append(help,
		"no import is needed to decide: the queue is in the record table (abi/SPEC.md)")
}

func exportProblems(m *lint.Module) []Problem {
	var problems []Problem
	missing := func(name, what string) {
		problems = append(problems, Problem{Code: codeMissingExport,
			Text: fmt.Sprintf("the export %q is missing: %s", name, what)})
	}
	if e, ok := m.Export(abi.ExportMemory); !ok {
		missing(abi.ExportMemory, "the module's one memory")
	} else if e.Kind != lint.ExportMemory {
		problems = append(problems, Problem{Code: codeExportType,
			Text: fmt.Sprintf("the export %q is not a memory", abi.ExportMemory)})
	}
	for _, want := range exports() {
		e, ok := m.Export(want.name)
		switch {
		case !ok && want.required:
			missing(want.name, want.typ.String())
		case !ok:
		case e.Kind != lint.ExportFunction:
			problems = append(problems, Problem{Code: codeExportType,
				Text: fmt.Sprintf("the export %q is not a function", want.name)})
		case m.TypeOf(e.Index).String() != want.typ.String():
			problems = append(problems, Problem{Code: codeExportType, Text: fmt.Sprintf(
				"the export %q is %s, the ABI says %s", want.name, m.TypeOf(e.Index), want.typ)})
		}
	}
	return problems
}

// lintProblems puts the lint's findings into the form of a report.
func lintProblems(found []lint.Problem) []Problem {
	var problems []Problem
	for _, p := range found {
		where := fmt.Sprintf("at byte %#x", p.Offset)
		if p.Function >= 0 {
			where = fmt.Sprintf("in function %d, at byte %#x", p.Function, p.Offset)
			if p.Name != "" {
				where = fmt.Sprintf("in %s (function %d), at byte %#x",
					p.Name, p.Function, p.Offset)
			}
		}
		problems = append(problems, Problem{Code: string(p.Code), Text: p.Message, Where: where})
	}
	return problems
}
