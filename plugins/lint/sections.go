package lint

// parser reads a module's sections in order.
type parser struct {
	limits   Limits
	m        *Module
	problems []Problem
	function int // whose code is being read, -1 outside code
	scope    scope
	exported map[string]bool
	grows    bool // some function grows a table
	elements int  // element segments
	items    int  // entries of all element segments
	data     int  // data segments
}

// problem records one problem.
func (p *parser) problem(code Code, offset int, format string, args ...any) {
	p.problems = append(p.problems, newProblem(p, code, offset, format, args))
}

func (p *parser) reader(data []byte, base int) *reader {
	return &reader{data: data, base: base, fail: p.problem}
}

// maxCustom bounds how many custom sections a module may have: compilers write a dozen.
const maxCustom = 256

// rank is the place of a section in the file; the data count stands between elements and code.
func rank(id byte) int {
	switch id {
	case SectionDataCount:
		return 2*SectionElement + 1
	default:
		return 2 * int(id)
	}
}

// sections reads the whole module behind its preamble.
func (p *parser) sections(module []byte) {
	p.function = -1
	r := p.reader(module[8:], 8)
	last, custom := 0, 0
	for r.left() > 0 {
		at := r.at
		id := r.u8()
		payload := r.bytes(r.u32())
		if r.failed {
			break
		}
		base := r.offset() - len(payload)
		switch {
		case id > SectionDataCount:
			r.badAt(at, Unsupported, "section %d is not one of WebAssembly 2.0", id)
			return
		case id == SectionCustom:
			if custom++; custom > maxCustom {
				r.bad(TooMany, "more than %d custom sections", maxCustom)
				return
			}
		case rank(id) <= last:
			r.badAt(at, Malformed, "section %d is repeated or out of order", id)
			return
		default:
			last = rank(id)
		}
		p.m.Sections = append(p.m.Sections, Section{ID: id, Payload: payload, Offset: base})
		if !p.section(id, p.reader(payload, base)) {
			return
		}
	}
	p.finish()
}

// section reads one section to its end; false means that nothing behind it can be judged.
func (p *parser) section(id byte, r *reader) bool {
	switch id {
	case SectionCustom:
		p.custom(r)
		return true
	case SectionType:
		p.types(r)
	case SectionImport:
		p.imports(r)
	case SectionFunction:
		p.functions(r)
	case SectionTable:
		p.tables(r)
	case SectionMemory:
		p.memories(r)
	case SectionGlobal:
		p.globals(r)
	case SectionExport:
		p.exports(r)
	case SectionStart:
		p.start(r)
	case SectionElement:
		p.elementSegments(r)
	case SectionDataCount:
		p.m.DataCount = int(r.u32())
	case SectionCode:
		p.code(r)
	case SectionData:
		p.dataSegments(r)
	}
	r.end("a section")
	return !r.failed
}

// custom reads a custom section. Only function names are kept; what is odd is ignored.
func (p *parser) custom(r *reader) {
	quiet := &reader{data: r.data, fail: func(Code, int, string, ...any) {}}
	if quiet.name(maxNameBytes) == "name" && p.m.Names == nil {
		p.m.Names = functionNames(quiet.data[quiet.at:], p.functionCount())
	}
}

// functionCount is how many functions there are, imported ones included.
func (p *parser) functionCount() int { return len(p.m.Imports) + len(p.m.Functions) }

func (p *parser) types(r *reader) {
	n := r.count("types", p.limits.Types, 3)
	for range n {
		if r.u8() != 0x60 {
			r.bad(Unsupported, "a type is not a plain function type")
		}
		t := FuncType{Params: p.valueTypes(r, "parameters"), Results: p.valueTypes(r, "results")}
		if r.failed {
			return
		}
		p.m.Types = append(p.m.Types, t)
	}
}

func (p *parser) valueTypes(r *reader, what string) []ValueType {
	at := r.at
	n := r.count(what, len(r.data), 1)
	if n > p.limits.Params {
		r.badAt(at, BadSignature, "%d %s; at most %d are allowed", n, what, p.limits.Params)
		return nil
	}
	var types []ValueType
	for range n {
		types = append(types, r.valueType())
	}
	return types
}

func (p *parser) imports(r *reader) {
	for range r.count("imports", p.limits.Imports, 4) {
		at := r.at
		i := Import{Module: r.name(p.limits.NameBytes), Name: r.name(p.limits.NameBytes)}
		kind := r.u8()
		if !r.failed && kind != byte(ExportFunction) {
			r.badAt(at, BadImport, "%q.%q is imported and is not a function; a policy brings "+
				"its own memory, tables and globals", i.Module, i.Name)
		}
		i.Type = r.index("type", len(p.m.Types))
		if r.failed {
			return
		}
		p.m.Imports = append(p.m.Imports, i)
	}
}

func (p *parser) functions(r *reader) {
	n := r.count("functions", p.limits.Functions, 1)
	p.m.Functions = make([]uint32, 0, n)
	for range n {
		p.m.Functions = append(p.m.Functions, r.index("type", len(p.m.Types)))
	}
}

func (p *parser) tables(r *reader) {
	for range r.count("tables", 1, 3) {
		r.refType()
		at := r.at
		s := r.size("table")
		if !r.failed && (int64(s.Min) > int64(p.limits.TableElements) ||
			s.HasMax && int64(s.Max) > int64(p.limits.TableElements)) {
			r.badAt(at, TableSize, "the table has %d entries or may grow to %d; at most %d are "+
				"allowed", s.Min, s.Max, p.limits.TableElements)
		}
		p.m.Tables = append(p.m.Tables, s)
	}
}

func (p *parser) memories(r *reader) {
	for range r.count("memories", 1, 2) {
		at := r.at
		s := r.size("memory")
		if !r.failed && int64(s.Min) > int64(p.limits.MemoryPages) {
			r.badAt(at, MemorySize, "the memory begins with %d pages of 64 KiB; at most %d are "+
				"allowed", s.Min, p.limits.MemoryPages)
		}
		p.m.Memories = append(p.m.Memories, s)
	}
}

// size reads the limits of a table or memory.
func (r *reader) size(what string) Size {
	var s Size
	switch flags := r.u8(); flags {
	case 0:
		s.Min = r.u32()
	case 1:
		s.Min, s.Max, s.HasMax = r.u32(), r.u32(), true
	default:
		r.bad(Unsupported, "a %s with flags %#x: shared and 64-bit ones are not supported",
			what, flags)
	}
	if s.HasMax && s.Max < s.Min {
		r.bad(Malformed, "a %s begins with %d and has a maximum of %d", what, s.Min, s.Max)
	}
	return s
}
