package lint

// Op is an instruction: its byte, or for the prefixes 0xfc and 0xfd the prefix shifted left by
// eight bits and the number behind it.
type Op uint16

// The instructions that the lint and the meter treat by name.
const (
	OpUnreachable  Op = 0x00
	OpBlock        Op = 0x02
	OpLoop         Op = 0x03
	OpIf           Op = 0x04
	OpElse         Op = 0x05
	OpEnd          Op = 0x0b
	OpBrIf         Op = 0x0d
	OpBrTable      Op = 0x0e
	OpCall         Op = 0x10
	OpCallIndirect Op = 0x11
	OpMemoryGrow   Op = 0x40
	OpMemoryInit   Op = 0xfc08
	OpMemoryCopy   Op = 0xfc0a
	OpMemoryFill   Op = 0xfc0b
	OpTableInit    Op = 0xfc0c
	OpTableCopy    Op = 0xfc0e
	OpTableGrow    Op = 0xfc0f
	OpTableFill    Op = 0xfc11
	opV128Const    Op = 0xfd0c
)

// immediate says what follows an instruction's number.
type immediate uint8

const (
	immUnknown immediate = iota // not an instruction of WebAssembly 2.0
	immNone
	immBlock    // a block type
	immLabel    // how many blocks to leave
	immLabels   // a vector of labels and one more
	immLocal    // index
	immGlobal   // index
	immTable    // index
	immFunction // index
	immElement  // index
	immData     // index
	immIndirect // type index, table index
	immCopy     // table index, table index
	immInit     // element index, table index
	immMemInit  // data index, zero byte
	immMemory   // zero byte
	immMemory2  // two zero bytes
	immMemArg   // alignment, offset
	immLane     // a byte
	immMemLane  // alignment, offset, a byte
	immI32
	immI64
	imm4Bytes
	imm8Bytes
	imm16Bytes
	immRefType
	immTypes // a vector of one value type
)

// opRange gives the instructions from First to Last the same kind of immediate.
type opRange struct {
	first, last byte
	imm         immediate
}

// plain lists the instructions of one byte.
func plain() []opRange {
	return []opRange{
		{0x00, 0x01, immNone}, {0x02, 0x04, immBlock}, {0x05, 0x05, immNone},
		{0x0b, 0x0b, immNone}, {0x0c, 0x0d, immLabel}, {0x0e, 0x0e, immLabels},
		{0x0f, 0x0f, immNone}, {0x10, 0x10, immFunction}, {0x11, 0x11, immIndirect},
		{0x1a, 0x1b, immNone}, {0x1c, 0x1c, immTypes}, {0x20, 0x22, immLocal},
		{0x23, 0x24, immGlobal}, {0x25, 0x26, immTable}, {0x28, 0x3e, immMemArg},
		{0x3f, 0x40, immMemory}, {0x41, 0x41, immI32}, {0x42, 0x42, immI64},
		{0x43, 0x43, imm4Bytes}, {0x44, 0x44, imm8Bytes}, {0x45, 0xc4, immNone},
		{0xd0, 0xd0, immRefType}, {0xd1, 0xd1, immNone}, {0xd2, 0xd2, immFunction},
	}
}

// bulk lists the instructions behind the prefix 0xfc.
func bulk() []opRange {
	return []opRange{
		{0, 7, immNone}, {8, 8, immMemInit}, {9, 9, immData}, {10, 10, immMemory2},
		{11, 11, immMemory}, {12, 12, immInit}, {13, 13, immElement}, {14, 14, immCopy},
		{15, 17, immTable},
	}
}

// vector lists the instructions behind the prefix 0xfd. The numbers that stand for nothing have no
// immediate, so that they cannot be read in two ways; the runtime refuses them.
func vector() []opRange {
	return []opRange{
		{0, 11, immMemArg}, {12, 13, imm16Bytes}, {14, 20, immNone}, {21, 34, immLane},
		{35, 83, immNone}, {84, 91, immMemLane}, {92, 93, immMemArg}, {94, 255, immNone},
	}
}

func tableOf(ranges []opRange) (t [256]immediate) {
	for _, r := range ranges {
		for i := int(r.first); i <= int(r.last); i++ {
			t[i] = r.imm
		}
	}
	return t
}

// The three tables are filled once and never change.
var plainImm, bulkImm, vectorImm = tableOf(plain()), tableOf(bulk()), tableOf(vector())

// Instruction is one instruction of a body and where it stands.
type Instruction struct {
	Op      Op
	At, End int    // half-open, within the body's code
	Index   uint32 // the first index behind it, if it has one
	Second  uint32 // the second
}

// Instructions calls each for every instruction of a body that passed Check, in order.
func Instructions(code []byte, each func(Instruction)) {
	r := &reader{data: code, fail: func(c Code, at int, _ string, _ ...any) {
		panic("lint: code that was not checked: " + string(c))
	}}
	for r.left() > 0 {
		each(r.instruction(nil))
	}
}

// operation reads an instruction's number, which must be written as short as it can be: the
// runtime reads the one behind 0xfd as a single byte and takes a second byte 1 for a nop, which
// comes to the same thing only then.
func (r *reader) operation() (Op, immediate) {
	op := r.u8()
	if op != 0xfc && op != 0xfd {
		return Op(op), plainImm[op]
	}
	first := r.at
	sub := r.u32()
	short := r.at-first == 1 || r.at-first == 2 && sub >= 0x80
	if r.failed || sub > 0xff || !short {
		return Op(op), immUnknown
	}
	if op == 0xfc {
		return 0xfc00 | Op(sub), bulkImm[sub]
	}
	return 0xfd00 | Op(sub), vectorImm[sub]
}

// instruction reads one instruction. With a scope its indices are judged too.
func (r *reader) instruction(s *scope) Instruction {
	in := Instruction{At: r.at}
	op, imm := r.operation()
	in.Op = op
	if imm == immUnknown && !r.failed {
		r.badAt(in.At, Unsupported, "instruction %#x is not one of WebAssembly 2.0; build without "+
			"proposals such as threads, tail calls or exceptions", r.data[in.At])
		return in
	}
	if s == nil {
		s = &scope{unchecked: true}
	}
	r.immediates(imm, &in, s)
	in.End = r.at
	return in
}

// immediates reads what follows an instruction's number.
func (r *reader) immediates(imm immediate, in *Instruction, s *scope) {
	switch imm {
	case immBlock:
		r.blockType(s)
	case immLabels:
		r.labels(s)
	case immIndirect:
		in.Index, in.Second = s.index(r, "type", s.types), s.index(r, "table", s.tables)
	case immCopy:
		in.Index, in.Second = s.index(r, "table", s.tables), s.index(r, "table", s.tables)
	case immInit:
		in.Index = s.index(r, "element segment", s.elements)
		in.Second = s.index(r, "table", s.tables)
	case immMemInit:
		in.Index = s.index(r, "data segment", s.data)
		r.memory(s)
	case immMemory:
		r.memory(s)
	case immMemory2:
		r.memory(s)
		r.memory(s)
	case immMemArg, immMemLane:
		r.memArg(imm == immMemLane, s)
	case immI32:
		r.signed(32)
	case immI64:
		r.signed(64)
	case immLane:
		r.u8()
	case imm4Bytes:
		r.bytes(4)
	case imm8Bytes:
		r.bytes(8)
	case imm16Bytes:
		r.bytes(16)
	case immRefType:
		r.refType()
	case immTypes:
		if r.u8() != 1 {
			r.bad(Unsupported, "a select has other than one type")
		}
		r.valueType()
	default:
		r.single(imm, in, s)
	}
}

// single reads the immediate that is one index.
func (r *reader) single(imm immediate, in *Instruction, s *scope) {
	switch imm {
	case immLabel:
		in.Index = s.index(r, "label", s.depth)
	case immLocal:
		in.Index = s.index(r, "local", s.locals)
	case immGlobal:
		in.Index = s.index(r, "global", s.globals)
	case immTable:
		in.Index = s.index(r, "table", s.tables)
	case immFunction:
		in.Index = s.index(r, "function", s.functions)
	case immElement:
		in.Index = s.index(r, "element segment", s.elements)
	case immData:
		in.Index = s.index(r, "data segment", s.data)
	}
}
