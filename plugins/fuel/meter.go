package fuel

import "github.com/kvrelay/engine/plugins/lint"

// What is charged beyond one unit an instruction.
const (
	// entry is what calling a function costs. It also bounds the depth of a recursion, and with it
	// the stack that the host must grow: fuel / (entry + locals) frames.
	entry = 16
	// hostCall is what an instruction costs that the runtime hands to the host.
	hostCall = 256
	// slow is what a division, a remainder or a square root costs.
	slow = 8
)

// weight is the cost of an instruction, without the length it may work on.
func weight(op lint.Op) int64 {
	switch op {
	case lint.OpMemoryGrow, lint.OpTableGrow, opRefFunc:
		return hostCall
	case 0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82, 0x91, 0x95, 0x9f, 0xa3,
		0xfde3, 0xfde7, 0xfdef, 0xfdf3:
		return slow
	default:
		return 1
	}
}

// shift says how the length on top of the stack becomes a cost: to the left by the first number or
// to the right by the second. Bytes cost an eighth each, entries of a table one, pages 8192.
func shift(op lint.Op) (left, right int64, ranged bool) {
	switch op {
	case lint.OpMemoryGrow:
		return 13, 0, true
	case lint.OpMemoryCopy, lint.OpMemoryFill, lint.OpMemoryInit:
		return 0, 3, true
	case lint.OpTableGrow, lint.OpTableCopy, lint.OpTableFill, lint.OpTableInit:
		return 0, 0, true
	default:
		return 0, 0, false
	}
}

// point is a place where something is charged.
type point struct {
	at   int     // in the body's code
	cost int64   // of its region
	op   lint.Op // the instruction that pays by length, 0 for a region
}

// manyTargets is from how many targets on a br_table counts as a dispatch.
const manyTargets = 4

// dispatches says whether a body has a large br_table inside a loop.
func dispatches(code []byte) bool {
	loops, found := 0, false
	var open []bool
	lint.Instructions(code, func(in lint.Instruction) {
		switch in.Op {
		case lint.OpBlock, lint.OpIf, lint.OpLoop:
			open = append(open, in.Op == lint.OpLoop)
			if in.Op == lint.OpLoop {
				loops++
			}
		case lint.OpEnd:
			if n := len(open); n > 0 {
				if open[n-1] {
					loops--
				}
				open = open[:n-1]
			}
		case lint.OpBrTable:
			found = found || loops > 0 && in.End-in.At > manyTargets+1
		}
	})
	return found
}

// points finds what is charged where in a body, ascending by place.
func points(code []byte, first int64) []point {
	list := []point{{cost: first}}
	split := dispatches(code)
	current := 0 // the region of the instruction at hand
	var open []int
	lint.Instructions(code, func(in lint.Instruction) {
		list[current].cost += weight(in.Op)
		switch in.Op {
		case lint.OpBlock, lint.OpIf:
			open = append(open, current)
		case lint.OpLoop:
			open = append(open, current)
			list = append(list, point{at: in.End})
			current = len(list) - 1
		case lint.OpEnd:
			n := len(open)
			if n == 0 {
				return
			}
			current = open[n-1]
			open = open[:n-1]
			if split {
				list = append(list, point{at: in.End})
				current = len(list) - 1
			}
		}
		if _, _, ranged := shift(in.Op); ranged {
			list = append(list, point{at: in.At, op: in.Op})
		}
	})
	return list
}

// The instructions that the meter writes.
const (
	opUnreachable = 0x00
	opIf          = 0x04
	opLocalGet    = 0x20
	opLocalTee    = 0x22
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opI32Const    = 0x41
	opI64Const    = 0x42
	opI64LtS      = 0x53
	opI64Sub      = 0x7d
	opI64Shl      = 0x86
	opI64ShrU     = 0x88
	opI64ExtendU  = 0xad
	opRefFunc     = 0xd2
	emptyBlock    = 0x40
)

// body is a function's locals and code, metered. Two locals are added behind its own: the fuel
// that is left, and the length an instruction works on.
func (w *writer) body(b lint.Body, params int) []byte {
	locals := uint32(params + b.Locals)
	e := emitter{fuel: w.global, rest: locals, length: locals + 1}
	e.trace, e.offset = w.trace, b.Offset
	e.out = appendU32(e.out, uint32(b.Count)+2)
	e.out = append(e.out, b.Groups...)
	e.out = append(e.out, 1, byte(lint.I64), 1, byte(lint.I32))
	done := 0
	for _, p := range points(b.Code, entry+int64(locals)) {
		e.copy(b.Code, done, p.at)
		done = p.at
		e.mark(p.at)
		if p.op != 0 {
			w.stats.Ranges++
			e.chargeLength(p.op)
		} else if p.cost > 0 {
			w.stats.Points++
			e.chargeRegion(p.cost)
		}
	}
	e.copy(b.Code, done, len(b.Code))
	return e.out
}

// emitter writes the charges into one body.
type emitter struct {
	out                []byte
	fuel, rest, length uint32 // a global and two locals
	trace              bool
	offset             int // of the body's code in the file
}

// op writes an instruction with an index behind it.
func (e *emitter) op(op byte, index uint32) { e.out = appendU32(append(e.out, op), index) }

// constant writes an i64.
func (e *emitter) constant(v int64) { e.out = appendS64(append(e.out, opI64Const), v) }

// chargeRegion takes a fixed cost.
func (e *emitter) chargeRegion(cost int64) {
	e.op(opGlobalGet, e.fuel)
	e.constant(cost)
	e.take()
}

// chargeLength takes a cost that grows with the i32 on top of the stack, and leaves that there.
func (e *emitter) chargeLength(op lint.Op) {
	left, right, _ := shift(op)
	e.op(opLocalTee, e.length)
	e.op(opGlobalGet, e.fuel)
	e.op(opLocalGet, e.length)
	e.out = append(e.out, opI64ExtendU)
	if left > 0 {
		e.constant(left)
		e.out = append(e.out, opI64Shl)
	}
	if right > 0 {
		e.constant(right)
		e.out = append(e.out, opI64ShrU)
	}
	e.take()
}

// take subtracts the i64 on top of the stack from the fuel below it, keeps the rest, and traps when
// that is negative.
func (e *emitter) take() {
	e.out = append(e.out, opI64Sub)
	e.op(opLocalTee, e.rest)
	e.op(opGlobalSet, e.fuel)
	e.op(opLocalGet, e.rest)
	e.constant(0)
	e.out = append(e.out, opI64LtS, opIf, emptyBlock, opUnreachable, byte(lint.OpEnd))
}
