package lint

// scope is the sizes of the index spaces around an instruction, and what has been counted so far.
// They are the module's own spaces: nothing the meter adds can be named from inside.
type scope struct {
	unchecked bool // the indices were judged before

	types, functions, locals, globals, tables, memories, elements, data int

	depth    int // open blocks, the function's own included
	deepest  int // the most there were
	branches int // see the function of that name
	limits   Limits
	grows    *bool // set when a table is grown
}

// index reads an index of a space.
func (s *scope) index(r *reader, what string, size int) uint32 {
	if s.unchecked {
		return r.u32()
	}
	return r.index(what, size)
}

// memory reads the zero that stands for memory 0.
func (r *reader) memory(s *scope) {
	if r.u8() != 0 {
		r.bad(Unsupported, "a second memory is named; policies have one")
	}
	if !s.unchecked && s.memories == 0 {
		r.bad(BadIndex, "memory 0 does not exist")
	}
}

// memArg reads an alignment and an offset. The alignment is one byte: its high bits would mean
// other memories in a later WebAssembly.
func (r *reader) memArg(lane bool, s *scope) {
	if align := r.u8(); align > 4 {
		r.bad(Unsupported, "alignment 2^%d; at most 2^4 exists", align)
	}
	r.u32()
	if lane {
		r.u8()
	}
	if !s.unchecked && s.memories == 0 {
		r.bad(BadIndex, "memory 0 does not exist")
	}
}

// labels reads the targets of a br_table.
func (r *reader) labels(s *scope) {
	limit := s.limits.BrTable
	if s.unchecked {
		limit = len(r.data)
	}
	for range r.count("targets of a br_table", limit, 1) + 1 {
		s.index(r, "label", s.depth)
	}
}

// emptyBlock is the block type of a block that takes and gives nothing.
const emptyBlock = 0x40

// blockType reads a block's type: nothing, one value type, or the index of a function type.
func (r *reader) blockType(s *scope) {
	at := r.at
	t := r.signed(33)
	switch {
	case r.failed:
	case t >= 0 && (s.unchecked || t < int64(s.types)):
	case t < 0 && r.at == at+1 && (r.data[at] == emptyBlock || isValueType(r.data[at])):
	default:
		r.badAt(at, BadIndex, "block type %d does not exist", t)
	}
}

func isValueType(b byte) bool {
	return b >= byte(V128) && b <= byte(I32) || b == byte(FuncRef) || b == byte(ExternRef)
}

func (r *reader) valueType() ValueType {
	b := r.u8()
	if !r.failed && !isValueType(b) {
		r.badAt(r.at-1, Unsupported, "%#x is not a value type of WebAssembly 2.0", b)
	}
	return ValueType(b)
}

func (r *reader) refType() ValueType {
	t := r.valueType()
	if !r.failed && t != FuncRef && t != ExternRef {
		r.badAt(r.at-1, Malformed, "%v is not a reference type", t)
	}
	return t
}

// body reads one function's locals and instructions.
func (p *parser) body(r *reader, params int) Body {
	p.function = len(p.m.Imports) + len(p.m.Bodies)
	defer func() { p.function = -1 }()
	var b Body
	b.Locals, b.Groups, b.Count = p.locals(r, params)
	b.Code, b.Offset = r.data[r.at:], r.offset()
	s := p.scope
	s.locals = params + b.Locals
	s.depth, s.deepest, s.branches = 1, 1, 0
	for r.left() > 0 && s.depth > 0 {
		p.nest(r, &s, r.instruction(&s))
	}
	if !r.failed && s.depth > 0 {
		r.bad(Malformed, "the code ends inside a block")
	}
	r.end("a function's code")
	p.m.Deepest = max(p.m.Deepest, s.deepest)
	return b
}

// branches is how many places an instruction adds, metered, where a function forks or joins. The
// runtime's compilation time grows with their square: a second for about four thousand.
func branches(op Op) int {
	switch op {
	case OpBlock, OpIf, OpBrIf, OpBrTable:
		return 1
	case OpLoop, OpMemoryGrow, OpMemoryInit, OpMemoryCopy, OpMemoryFill, OpTableInit, OpTableCopy,
		OpTableGrow, OpTableFill:
		return 3
	default:
		return 0
	}
}

// nest follows an instruction's effect on the open blocks.
func (p *parser) nest(r *reader, s *scope, in Instruction) {
	if s.branches += branches(in.Op); s.branches > p.limits.Branches {
		r.bad(TooComplex, "more than %d branches in one function", p.limits.Branches)
	}
	switch in.Op {
	case OpBlock, OpLoop, OpIf:
		s.depth++
		s.deepest = max(s.deepest, s.depth)
		if s.depth > p.limits.Nesting {
			r.bad(TooComplex, "blocks are nested deeper than %d", p.limits.Nesting)
		}
	case OpEnd:
		s.depth--
	case OpTableGrow:
		*s.grows = true
	}
}

// locals reads the declarations of a function's locals.
func (p *parser) locals(r *reader, params int) (total int, groups []byte, count int) {
	count = r.count("declarations of locals", p.limits.Locals, 2)
	start := r.at
	for range count {
		at := r.at
		n := r.u32()
		r.valueType()
		if int64(n)+int64(total)+int64(params) > int64(p.limits.Locals) {
			r.badAt(at, TooManyLocals, "more than %d locals in one function", p.limits.Locals)
		}
		if r.failed {
			return total, nil, 0
		}
		total += int(n)
	}
	return total, r.data[start:r.at], count
}
