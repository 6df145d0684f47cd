package plugins

import "context"

// Report is what Check found: lines of facts, and what is wrong.
type Report struct {
	Lines    []Line
	Warnings []string
	Problems []Problem
}

// Line is one fact, such as "exports" and the list of them.
type Line struct {
	Name string // module, exports, imports, descriptor, memory, fuel, behaviour
	Text string
}

// Problem is a reason to refuse the module, or a rule that its answers broke.
type Problem struct {
	Code  string // P014
	Text  string // what is wrong
	Where string // function and offset, "" if none
	Help  []string
}

// OK says whether the module can be loaded.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Check finds all problems of a module without loading it into a host: its size, exports, imports,
// descriptor, memory, the growth by metering, its behaviour on made-up tables, whether two runs
// decide equally and whether compiler and interpreter do.
func Check(ctx context.Context, wasm []byte, config []byte, l Limits) Report { return Report{} }
