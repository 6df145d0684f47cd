// Package fuel rewrites a module so that it meters itself.
//
// A metered module has one global more, its fuel, exported as Export, and exports the globals that
// it changes (StateExport), so that its state can be kept and restored. Every function and every
// turn of a loop takes what it may cost from the fuel before it runs, and traps when the fuel is
// used up. The host fills the global before a call and reads afterwards what is left; a negative
// rest means that the trap was the meter's. The same module with the same input uses the same fuel
// on every machine, compiled or interpreted.
//
// What is charged: one unit an instruction, more for the slow ones (see weight), at the head of the
// region it lies in. A region begins at a function's entry and at a loop's head, and ends at the
// loop's end; both arms of an if are charged. Where a loop dispatches through a br_table, as Go's
// compiler writes functions, a region ends at the end of every block too, because otherwise each
// turn would pay for the whole function. Instructions on a range of memory or of a table also pay
// for its length.
package fuel

import (
	"errors"

	"github.com/kvrelay/engine/plugins/lint"
)

// Export is the name under which a metered module exports its fuel, a mutable i64.
const Export = lint.ReservedExport + "fuel"

// Stats says what was added to a module.
type Stats struct {
	Functions int // with code
	Points    int // regions that are charged
	Ranges    int // instructions that pay by length
	Before    int // bytes of the file, custom sections left out
	After     int // bytes of the metered file
}

// Growth is by how much the module grew, 0.18 for 18 percent.
func (s Stats) Growth() float64 {
	if s.Before == 0 {
		return 0
	}
	return float64(s.After)/float64(s.Before) - 1
}

// Meter returns the metered form of a module. It takes a module that passed the lint, because only
// then no index of the module can name what is added here. Of the custom sections only the names of
// functions stay. The fuel at instantiation, which a start function uses, is initial.
func Meter(m *lint.Module, initial int64) ([]byte, Stats, error) {
	return rewrite(m, initial, false)
}

// Trace is Meter with one exported global more, Position: the place in the original file of the
// latest instruction that may trap, or the entry of the latest region. Fuel is charged as ever. It
// is for tools that look for the place of a trap, and slow.
func Trace(m *lint.Module, initial int64) ([]byte, error) {
	out, _, err := rewrite(m, initial, true)
	return out, err
}

func rewrite(m *lint.Module, initial int64, trace bool) ([]byte, Stats, error) {
	if initial < 0 {
		return nil, Stats{}, errors.New("fuel: the initial fuel is negative")
	}
	w := &writer{m: m, global: uint32(len(m.Globals)), initial: initial, trace: trace}
	w.states, _ = States(m)
	w.stats.Functions = len(m.Bodies)
	out := append([]byte(nil), m.Binary[:8]...)
	w.stats.Before = len(out)
	for _, s := range w.sections() {
		out = appendSection(out, s.ID, w.payload(s))
	}
	if len(m.Names) > 0 {
		out = appendSection(out, lint.SectionCustom, names(m.Names))
	}
	w.stats.After = len(out)
	return out, w.stats, nil
}

// writer holds what the sections of one metered module are made from.
type writer struct {
	m       *lint.Module
	global  uint32 // index of the fuel
	initial int64
	trace   bool     // there is a position behind the fuel
	states  []uint32 // globals that are exported
	stats   Stats
}

// sections is the module's own sections without the custom ones, with empty sections for globals
// and exports where it has none.
func (w *writer) sections() []lint.Section {
	var out []lint.Section
	missing := []byte{lint.SectionGlobal, lint.SectionExport}
	for _, s := range w.m.Sections {
		if s.ID == lint.SectionCustom {
			continue
		}
		w.stats.Before += 1 + sizeU32(uint32(len(s.Payload))) + len(s.Payload)
		// The data count, number 12, stands behind the elements, number 9.
		for len(missing) > 0 && missing[0] < s.ID {
			out = append(out, lint.Section{ID: missing[0], Payload: []byte{0}})
			missing = missing[1:]
		}
		if len(missing) > 0 && missing[0] == s.ID {
			missing = missing[1:]
		}
		out = append(out, s)
	}
	for _, id := range missing {
		out = append(out, lint.Section{ID: id, Payload: []byte{0}})
	}
	return out
}

// payload is a section's content in the metered module.
func (w *writer) payload(s lint.Section) []byte {
	switch s.ID {
	case lint.SectionGlobal:
		global := []byte{byte(lint.I64), 1, opI64Const}
		items := [][]byte{append(appendS64(global, w.initial), byte(lint.OpEnd))}
		if w.trace {
			items = append(items,
				[]byte{byte(lint.I32), 1, opI32Const, 0, byte(lint.OpEnd)})
		}
		return addItems(s.Payload, len(w.m.Globals), items)
	case lint.SectionExport:
		items := [][]byte{exportGlobal(Export, w.global)}
		if w.trace {
			items = append(items, exportGlobal(Position, w.global+1))
		}
		for _, i := range w.states {
			items = append(items, exportGlobal(StateExport(i), i))
		}
		return addItems(s.Payload, len(w.m.Exports), items)
	case lint.SectionCode:
		out := appendU32(nil, uint32(len(w.m.Bodies)))
		for i, b := range w.m.Bodies {
			params := len(w.m.Types[w.m.Functions[i]].Params)
			code := w.body(b, params)
			out = append(appendU32(out, uint32(len(code))), code...)
		}
		return out
	default:
		return s.Payload
	}
}

// exportGlobal is an entry of the export section.
func exportGlobal(name string, index uint32) []byte {
	return appendU32(append(appendName(nil, name), byte(lint.ExportGlobal)), index)
}

// addItems appends items to a vector that holds count.
func addItems(payload []byte, count int, items [][]byte) []byte {
	skip := 0
	for payload[skip] >= 0x80 {
		skip++
	}
	out := appendU32(nil, uint32(count+len(items)))
	out = append(out, payload[skip+1:]...)
	for _, item := range items {
		out = append(out, item...)
	}
	return out
}

// names is the payload of a name section with the names of functions.
func names(list []lint.Name) []byte {
	entries := appendU32(nil, uint32(len(list)))
	for _, n := range list {
		entries = appendName(appendU32(entries, n.Function), n.Name)
	}
	out := append(appendName(nil, "name"), 1)
	return append(appendU32(out, uint32(len(entries))), entries...)
}
