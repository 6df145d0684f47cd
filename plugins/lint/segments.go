package lint

import (
	"fmt"
	"strings"
)

func newProblem(p *parser, code Code, offset int, format string, args []any) Problem {
	problem := Problem{Code: code, Offset: offset, Function: p.function,
		Message: fmt.Sprintf(format, args...)}
	if p.function >= 0 {
		problem.Name = p.m.NameOf(uint32(p.function))
	}
	return problem
}

func (p *parser) globals(r *reader) {
	for range r.count("globals", p.limits.Globals, 4) {
		g := Global{Type: r.valueType()}
		mutable := r.u8()
		if mutable > 1 {
			r.bad(Malformed, "a global is neither constant nor mutable")
		}
		g.Mutable = mutable == 1
		p.constant(r)
		if r.failed {
			return
		}
		p.m.Globals = append(p.m.Globals, g)
	}
}

// constant reads a constant expression: one constant, reference or earlier global, then end.
func (p *parser) constant(r *reader) {
	switch op, _ := r.operation(); op {
	case 0x41:
		r.signed(32)
	case 0x42:
		r.signed(64)
	case 0x43:
		r.bytes(4)
	case 0x44:
		r.bytes(8)
	case opV128Const:
		r.bytes(16)
	case 0x23:
		r.index("global", len(p.m.Globals))
	case 0xd0:
		r.refType()
	case 0xd2:
		r.index("function", p.functionCount())
	default:
		r.bad(Unsupported, "instruction %#x in a constant expression", op)
	}
	if !r.failed && r.u8() != byte(OpEnd) {
		r.bad(Unsupported, "a constant expression has more than one instruction")
	}
}

func (p *parser) exports(r *reader) {
	p.exported = map[string]bool{}
	for range r.count("exports", p.limits.Exports, 3) {
		at := r.offset()
		e := Export{Name: r.name(p.limits.NameBytes), Kind: ExportKind(r.u8())}
		sizes := []int{p.functionCount(), len(p.m.Tables), len(p.m.Memories), len(p.m.Globals)}
		what := []string{"function", "table", "memory", "global"}
		if !r.failed && int(e.Kind) >= len(sizes) {
			r.bad(Unsupported, "export %q is of an unknown kind %d", e.Name, e.Kind)
		}
		if r.failed {
			return
		}
		e.Index = r.index(what[e.Kind], sizes[e.Kind])
		switch {
		case p.exported[e.Name]:
			p.problem(BadExport, at, "two exports are named %q", e.Name)
		case strings.HasPrefix(e.Name, ReservedExport):
			p.problem(BadExport, at, "export %q: names that begin with %q are the host's",
				e.Name, ReservedExport)
		}
		p.exported[e.Name] = true
		p.m.Exports = append(p.m.Exports, e)
	}
}

func (p *parser) start(r *reader) {
	at := r.offset()
	f := r.index("function", p.functionCount())
	if r.failed {
		return
	}
	p.m.HasStart = true
	if t := p.m.TypeOf(f); len(t.Params)+len(t.Results) > 0 {
		p.problem(BadStart, at, "the start function is %v and must take and give nothing", t)
	}
}

// Bits of an element segment's flags.
const (
	elementPassive    = 1 // or declarative
	elementExplicit   = 2 // an active one names its table, a passive one is declarative
	elementExpression = 4 // its entries are constant expressions
	elementFlags      = 7
)

func (p *parser) elementSegments(r *reader) {
	for range r.count("element segments", p.limits.Segments, 2) {
		flags := r.u32()
		if flags > elementFlags {
			r.bad(Malformed, "an element segment has flags %#x", flags)
		}
		if flags&elementPassive == 0 {
			if flags&elementExplicit != 0 {
				r.index("table", len(p.m.Tables))
			} else if len(p.m.Tables) == 0 {
				r.bad(BadIndex, "table 0 does not exist")
			}
			p.constant(r)
		}
		if flags&(elementPassive|elementExplicit) != 0 {
			p.elementKind(r, flags)
		}
		p.elementItems(r, flags)
		if r.failed {
			return
		}
		p.elements++
	}
}

func (p *parser) elementKind(r *reader, flags uint32) {
	if flags&elementExpression != 0 {
		r.refType()
	} else if r.u8() != 0 {
		r.bad(Malformed, "an element segment holds something other than functions")
	}
}

func (p *parser) elementItems(r *reader, flags uint32) {
	size := 1
	if flags&elementExpression != 0 {
		size = 3
	}
	n := r.count("entries of element segments", p.limits.TableElements-p.items, size)
	p.items += n
	for range n {
		if flags&elementExpression != 0 {
			p.constant(r)
		} else {
			r.index("function", p.functionCount())
		}
		if r.failed {
			return
		}
	}
}

func (p *parser) dataSegments(r *reader) {
	for range r.count("data segments", p.limits.Segments, 2) {
		flags := r.u32()
		if flags > 2 {
			r.bad(Malformed, "a data segment has flags %#x", flags)
		}
		if flags == 2 && r.u8() != 0 {
			r.bad(Unsupported, "a data segment names a second memory; policies have one")
		}
		if flags != 1 {
			p.constant(r)
			if len(p.m.Memories) == 0 {
				r.bad(BadIndex, "memory 0 does not exist")
			}
		}
		r.bytes(r.u32())
		if r.failed {
			return
		}
		p.data++
	}
}

// code reads the bodies of all functions, through to the last problem-free one.
func (p *parser) code(r *reader) {
	n := r.count("functions with code", p.limits.Functions, 2)
	if n != len(p.m.Functions) {
		r.bad(Malformed, "%d functions are declared and %d have code", len(p.m.Functions), n)
		return
	}
	p.scope = scope{
		types: len(p.m.Types), functions: p.functionCount(), globals: len(p.m.Globals),
		tables: len(p.m.Tables), memories: len(p.m.Memories), elements: p.elements,
		data: max(p.m.DataCount, 0), limits: p.limits, grows: &p.grows,
	}
	p.m.Bodies = make([]Body, 0, n)
	for i := range n {
		size := int(r.u32())
		base := r.offset()
		code := r.bytes(uint32(size))
		if r.failed {
			return
		}
		p.m.LargestBody = max(p.m.LargestBody, size)
		if size > p.limits.BodyBytes {
			p.function = len(p.m.Imports) + i
			p.problem(BodySize, base, "a function's code is %d bytes; at most %d are allowed",
				size, p.limits.BodyBytes)
			p.function = -1
		}
		params := len(p.m.Types[p.m.Functions[i]].Params)
		p.m.Bodies = append(p.m.Bodies, p.body(p.reader(code, base), params))
		if len(p.problems) > maxProblems {
			r.bad(TooMany, "more than %d problems", maxProblems)
		}
	}
}

// maxProblems ends the list of a module that is wrong everywhere.
const maxProblems = 20

// finish judges what only the whole module shows.
func (p *parser) finish() {
	if len(p.problems) > 0 {
		return
	}
	m, end := p.m, len(p.m.Binary)
	if len(m.Functions) != len(m.Bodies) {
		p.problem(Malformed, end, "%d functions are declared and %d have code",
			len(m.Functions), len(m.Bodies))
	}
	if m.DataCount >= 0 && m.DataCount != p.data {
		p.problem(Malformed, end, "%d data segments are counted and %d are there",
			m.DataCount, p.data)
	}
	for i, t := range m.Tables {
		if p.grows && !t.HasMax {
			p.problem(OpenTable, end, "table %d has no maximum and table.grow is used; give it "+
				"one of at most %d", i, p.limits.TableElements)
		}
	}
}
