package fuel

import (
	"strconv"

	"github.com/kvrelay/engine/plugins/lint"
)

// Position is the name under which a module made by Trace exports its position, a mutable i32.
const Position = lint.ReservedExport + "position"

// StateExport is the name under which a metered module exports one of its mutable globals.
func StateExport(global uint32) string {
	return lint.ReservedExport + "global_" + strconv.Itoa(int(global))
}

// States lists the mutable globals that hold numbers. With the memory they are all of a module's
// state, if whole is true; it is not where the module changes its table, drops segments, or keeps
// references or vectors in globals.
func States(m *lint.Module) (globals []uint32, whole bool) {
	whole = true
	for i, g := range m.Globals {
		switch {
		case !g.Mutable:
		case g.Type == lint.I32 || g.Type == lint.I64 || g.Type == lint.F32 || g.Type == lint.F64:
			globals = append(globals, uint32(i))
		default:
			whole = false
		}
	}
	for _, b := range m.Bodies {
		lint.Instructions(b.Code, func(in lint.Instruction) {
			switch in.Op {
			case opTableSet, opDataDrop, opElemDrop, lint.OpTableGrow, lint.OpTableCopy,
				lint.OpTableFill, lint.OpTableInit:
				whole = false
			}
		})
	}
	return globals, whole
}

// The instructions that change what lies neither in memory nor in a number.
const (
	opTableSet = 0x26
	opDataDrop = 0xfc09
	opElemDrop = 0xfc0d
)

// copy writes instructions as they are, and before each that may trap its position.
func (e *emitter) copy(code []byte, from, to int) {
	if !e.trace {
		e.out = append(e.out, code[from:to]...)
		return
	}
	done := from
	lint.Instructions(code[from:to], func(in lint.Instruction) {
		if !mayTrap(in.Op) {
			return
		}
		at := from + in.At
		e.out = append(e.out, code[done:at]...)
		done = at
		e.mark(at)
	})
	e.out = append(e.out, code[done:to]...)
}

// mark writes the position of an instruction.
func (e *emitter) mark(at int) {
	if !e.trace {
		return
	}
	e.out = appendS64(append(e.out, opI32Const), int64(e.offset+at))
	e.op(opGlobalSet, e.fuel+1)
}

// mayTrap says whether an instruction may end the call: unreachable, calls, memory and table
// accesses, divisions, conversions to integers, and all vector instructions.
func mayTrap(op lint.Op) bool {
	switch {
	case op == opUnreachable, op == 0x10, op == 0x11, op == 0x25, op == opTableSet,
		op >= 0x28 && op <= 0x40, op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82,
		op >= 0xa8 && op <= 0xab, op >= 0xae && op <= 0xb1, op >= 0xfc08:
		return true
	}
	return false
}
