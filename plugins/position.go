package plugins

import (
	"debug/dwarf"
	"fmt"
	"path"
	"strings"

	"github.com/kvrelay/engine/plugins/fuel"
	"github.com/kvrelay/engine/plugins/lint"
)

// position is where a traced module was when its call ended: FILE:LINE (FUNCTION) where the module
// has line numbers, the function's name or number and the place in the file otherwise.
func (s *sandbox) position() string {
	if s.instance == nil {
		return ""
	}
	g := s.instance.ExportedGlobal(fuel.Position)
	if g == nil || g.Get() == 0 {
		return ""
	}
	return place(s.g.module, int(uint32(g.Get())))
}

// place describes an offset in a module's file.
func place(m *lint.Module, offset int) string {
	function := functionAt(m, offset)
	if function == "" {
		return fmt.Sprintf("byte %#x", offset)
	}
	if line := lineAt(m, offset); line != "" {
		return fmt.Sprintf("%s (%s)", line, function)
	}
	return fmt.Sprintf("byte %#x (%s)", offset, function)
}

// functionAt names the function whose code lies at an offset, "" if none does.
func functionAt(m *lint.Module, offset int) string {
	for i, b := range m.Bodies {
		if offset < b.Offset || offset >= b.Offset+len(b.Code) {
			continue
		}
		index := uint32(len(m.Imports) + i)
		if name := m.NameOf(index); name != "" {
			return name
		}
		for _, e := range m.Exports {
			if e.Kind == lint.ExportFunction && e.Index == index {
				return e.Name
			}
		}
		return fmt.Sprintf("function %d", index)
	}
	return ""
}

// lineAt finds FILE:LINE in the module's DWARF sections, "" without them. They are a guest's data:
// whatever the reader of the standard library does with them ends here.
func lineAt(m *lint.Module, offset int) (line string) {
	defer func() {
		if recover() != nil {
			line = ""
		}
	}()
	sections := map[string][]byte{}
	code := -1
	for _, s := range m.Sections {
		if s.ID == lint.SectionCode {
			code = s.Offset
		}
		if name, data, ok := custom(s); ok && strings.HasPrefix(name, ".debug_") {
			sections[name] = data
		}
	}
	if len(sections) == 0 || code < 0 {
		return ""
	}
	d, err := dwarf.New(sections[".debug_abbrev"], nil, nil, sections[".debug_info"],
		sections[".debug_line"], nil, sections[".debug_ranges"], sections[".debug_str"])
	if err != nil {
		return ""
	}
	for _, name := range []string{".debug_line_str", ".debug_str_offsets", ".debug_addr",
		".debug_rnglists"} {
		if data, ok := sections[name]; ok && d.AddSection(name, data) != nil {
			return ""
		}
	}
	return lineIn(d, uint64(offset-code))
}

// lineIn looks an address up in the line tables of all units.
func lineIn(d *dwarf.Data, pc uint64) string {
	for r := d.Reader(); ; {
		unit, err := r.Next()
		if err != nil || unit == nil {
			return ""
		}
		if unit.Tag == dwarf.TagCompileUnit {
			lines, err := d.LineReader(unit)
			var at dwarf.LineEntry
			if err == nil && lines != nil && lines.SeekPC(pc, &at) == nil && at.File != nil {
				return fmt.Sprintf("%s:%d", path.Base(strings.ReplaceAll(at.File.Name, `\`, "/")),
					at.Line)
			}
		}
		r.SkipChildren()
	}
}

// custom is the name and the content of a custom section.
func custom(s lint.Section) (name string, data []byte, ok bool) {
	if s.ID != lint.SectionCustom || len(s.Payload) == 0 {
		return "", nil, false
	}
	n, used := 0, 0
	for shift := 0; used < len(s.Payload) && used < 5; shift += 7 {
		b := s.Payload[used]
		used++
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	if n < 0 || n > len(s.Payload)-used {
		return "", nil, false
	}
	return string(s.Payload[used : used+n]), s.Payload[used+n:], true
}
