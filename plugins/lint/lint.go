// Package lint refuses the modules that the WebAssembly runtime must never see.
//
// The runtime trusts the counts that a module declares: fifteen bytes that announce 2^32 exports
// end the whole process, and a page of nested blocks compiles for a minute. Check reads the binary
// format strictly and to its end (core specification 2.0, without proposals), compares every count
// with the bytes that are left and with a named limit, and every index with the space it points
// into. It allocates no more than a small multiple of the module's own size.
//
// What passes is not yet a valid program: types of operands are the runtime's to verify. What
// passes is safe to decode, cheap to compile, and split into instructions exactly as the runtime
// splits it, which is what the meter of package fuel stands on.
package lint

import "bytes"

// Limits bounds a module. A field of 0 means its value in Default.
type Limits struct {
	ModuleBytes   int // the whole file
	BodyBytes     int // one function's code
	Types         int // function types
	Functions     int // functions defined by the module
	Imports       int // imported functions
	Exports       int // exports of every kind
	Globals       int // globals defined by the module
	Segments      int // data segments, and element segments
	Params        int // parameters of a function type; results likewise
	Locals        int // locals of one function, its parameters included
	Nesting       int // open blocks
	Branches      int // places where one function forks or joins, see branches in body.go
	BrTable       int // targets of one br_table
	TableElements int // entries of a table, and of all element segments together
	MemoryPages   int // pages of 64 KiB that the memory may begin with
	NameBytes     int // one name of an import or export
}

// Default is the limits of the policy ABI, section C.11.
func Default() Limits {
	return Limits{
		ModuleBytes:   8 << 20,
		BodyBytes:     128 << 10,
		Types:         2000,
		Functions:     20000,
		Imports:       64,
		Exports:       1024,
		Globals:       4096,
		Segments:      65536,
		Params:        64,
		Locals:        4096,
		Nesting:       1024, // Go's runtime alone needs 550.
		Branches:      4096,
		BrTable:       8192,
		TableElements: 65536,
		MemoryPages:   256,
		NameBytes:     256,
	}
}

// withDefaults fills the fields that are 0.
func (l Limits) withDefaults() Limits {
	d := Default()
	fields := []struct{ have, want *int }{
		{&l.ModuleBytes, &d.ModuleBytes}, {&l.BodyBytes, &d.BodyBytes}, {&l.Types, &d.Types},
		{&l.Functions, &d.Functions}, {&l.Imports, &d.Imports}, {&l.Exports, &d.Exports},
		{&l.Globals, &d.Globals}, {&l.Segments, &d.Segments}, {&l.Params, &d.Params},
		{&l.Locals, &d.Locals}, {&l.Nesting, &d.Nesting}, {&l.Branches, &d.Branches},
		{&l.BrTable, &d.BrTable}, {&l.TableElements, &d.TableElements},
		{&l.MemoryPages, &d.MemoryPages}, {&l.NameBytes, &d.NameBytes},
	}
	for _, f := range fields {
		if *f.have == 0 {
			*f.have = *f.want
		}
	}
	return l
}

// Check reads module and returns what it found and what is wrong with it. A module with no
// problems is safe to meter and to compile. When a problem makes the rest unreadable the list ends
// with it; independent problems are all named. The module returned is nil if there are problems.
//
// The Module refers to the bytes of the argument: the caller must not change them while it lives.
func Check(module []byte, limits Limits) (*Module, []Problem) {
	p := &parser{limits: limits.withDefaults(), m: &Module{Binary: module, DataCount: -1}}
	if p.header(module) {
		p.sections(module)
	}
	if len(p.problems) > 0 {
		return nil, p.problems
	}
	return p.m, nil
}

// The first eight bytes of a core module of version 1, and what a component has in their place.
var (
	magic            = []byte("\x00asm")
	versionCore      = []byte{1, 0, 0, 0}
	versionComponent = []byte{0x0d, 0, 1, 0}
)

// header judges size and preamble; false means there is nothing to read behind them.
func (p *parser) header(module []byte) bool {
	switch {
	case len(module) < 8 || !bytes.Equal(module[:4], magic):
		p.problem(NotAModule, 0, "this is not a WebAssembly module: it does not start with "+
			`"\0asm" and a version`)
	case bytes.Equal(module[4:8], versionComponent):
		p.problem(Component, 4, "this is a WebAssembly component; policies are core modules: "+
			"build for wasm32-unknown-unknown or wasip1, without componentizing")
	case !bytes.Equal(module[4:8], versionCore):
		p.problem(NotAModule, 4, "unknown WebAssembly version % x; policies are core modules of "+
			"version 1", module[4:8])
	case len(module) > p.limits.ModuleBytes:
		p.problem(ModuleSize, 0, "the module is %d bytes; at most %d are allowed",
			len(module), p.limits.ModuleBytes)
	default:
		return true
	}
	return false
}
