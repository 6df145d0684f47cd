package cpu

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"
)

// tileMachine is a model of the part of a processor that the tile kernels use. It reads their very
// bytes: the instructions of AMX as Intel's manual encodes and defines them, and the few others
// between. What a processor would refuse, or a kernel may not do, is a panic.
type tileMachine struct {
	ip         uintptr
	registers  [16]uint64
	zero       bool // the flag
	configured bool
	tiles      [8]modelTile
	allowed    []region // of memory, besides the call itself; nil: any
	executed   int
}

// modelTile is a tile register.
type modelTile struct {
	rows, bytes int
	data        [16][64]byte
}

// region is memory that may be read, and written when it says so.
type region struct {
	from, to uintptr
	write    bool
}

const stackPointer = 4

// regionOf is the memory of a slice.
func regionOf[T any](x []T, write bool) region {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(x)))
	return region{from, from + uintptr(len(x))*unsafe.Sizeof(x[0]), write}
}

// call runs the code of a tile kernel at an address until it returns.
func (m *tileMachine) call(code uintptr, c *amxCall) {
	var pins runtime.Pinner // What the machine knows by its address does not move.
	defer pins.Unpin()
	pins.Pin(c)
	if m.allowed != nil {
		m.allowed = append(m.allowed, regionOf(unsafe.Slice(c, 1), false))
	}
	m.run(code, uint64(uintptr(unsafe.Pointer(c))))
}

// run runs the code at an address, on arguments that its stack holds behind the way back.
func (m *tileMachine) run(code uintptr, arguments ...uint64) {
	var pins runtime.Pinner
	defer pins.Unpin()
	stack := append([]uint64{0}, arguments...)
	pins.Pin(&stack[0])
	m.registers[stackPointer] = uint64(uintptr(unsafe.Pointer(&stack[0])))
	if m.allowed != nil {
		m.allowed = append(m.allowed, regionOf(stack, false))
	}
	for m.ip = code; m.step(); {
		if m.executed++; m.executed > 1<<24 {
			panic("the kernel does not end")
		}
	}
	if m.configured {
		panic("the kernel returns without TILERELEASE")
	}
}

// memory checks an access and gives its bytes.
func (m *tileMachine) memory(address uint64, size int, write bool) []byte {
	ok := m.allowed == nil
	for _, r := range m.allowed {
		ok = ok || uintptr(address) >= r.from && uintptr(address)+uintptr(size) <= r.to &&
			(r.write || !write)
	}
	if !ok {
		panic(fmt.Sprintf("%d bytes at %x, writing %v, are not the kernel's", size, address, write))
	}
	return unsafe.Slice((*byte)(codeAt(uintptr(address))), size)
}

// codeAt is a pointer to an address.
func codeAt(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// fetch reads the next byte of code.
func (m *tileMachine) fetch() byte {
	b := *(*byte)(codeAt(m.ip))
	m.ip++
	return b
}

func (m *tileMachine) fetch32() int64 {
	v := *(*[4]byte)(codeAt(m.ip))
	m.ip += 4
	return int64(int32(binary.LittleEndian.Uint32(v[:])))
}

// operand is the second operand of an instruction: a register, or memory.
type operand struct {
	reg      int // the first operand, or a part of the opcode
	register int // -1: memory
	base     uint64
	index    uint64 // scaled
	disp     int64
	sib      bool
}

func (o operand) address() uint64 { return o.base + o.index + uint64(o.disp) }

// operand decodes ModRM, SIB and displacement; r, x and b extend the registers' numbers.
func (m *tileMachine) operand(r, x, b int) operand {
	modrm := int(m.fetch())
	mode, rm := modrm>>6, modrm&7
	o := operand{reg: modrm>>3&7 | r<<3, register: -1}
	if mode == 3 {
		o.register = rm | b<<3
		return o
	}
	if rm == 4 {
		sib := int(m.fetch())
		if index := sib>>3&7 | x<<3; index != stackPointer {
			o.index = m.registers[index] << (sib >> 6)
		}
		o.sib, rm = true, sib&7
	}
	if rm == 5 && mode == 0 {
		panic("no kernel needs an address without a base")
	}
	o.base = m.registers[rm|b<<3]
	switch mode {
	case 1:
		o.disp = int64(int8(m.fetch()))
	case 2:
		o.disp = m.fetch32()
	}
	return o
}

func (m *tileMachine) get(o operand) uint64 {
	if o.register >= 0 {
		return m.registers[o.register]
	}
	return binary.LittleEndian.Uint64(m.memory(o.address(), 8, false))
}

// step executes one instruction and says whether another follows.
func (m *tileMachine) step() bool {
	at := m.ip
	b := m.fetch()
	switch {
	case b == 0xc3: // RET
		return false
	case b == 0xc5: // VZEROUPPER
		if m.fetch() != 0xf8 || m.fetch() != 0x77 {
			panic(fmt.Sprintf("unknown instruction c5 at %x", at))
		}
	case b == 0xc4:
		m.vex(at)
	case b == 0x75: // JNZ
		to := int64(int8(m.fetch()))
		m.jump(to)
	case b == 0x0f:
		if m.fetch() != 0x85 {
			panic(fmt.Sprintf("unknown instruction 0f at %x", at))
		}
		m.jump(m.fetch32())
	case b>>4 == 4:
		m.general(at, int(b&15))
	case b>>3 == 0xb8>>3: // MOVL $, r
		m.registers[b&7] = uint64(uint32(m.fetch32()))
	default:
		panic(fmt.Sprintf("unknown instruction %02x at %x", b, at))
	}
	return true
}

func (m *tileMachine) jump(by int64) {
	if !m.zero {
		m.ip += uintptr(by)
	}
}

// general executes an instruction on general registers behind a REX prefix.
func (m *tileMachine) general(at uintptr, rex int) {
	op, r, x, b := m.fetch(), rex>>2&1, rex>>1&1, rex&1
	if op>>3 == 0xb8>>3 {
		if rex>>3 == 1 {
			panic("no kernel needs a constant of 64 bits")
		}
		m.registers[int(op&7)|b<<3] = uint64(uint32(m.fetch32()))
		return
	}
	if rex>>3 == 0 {
		panic(fmt.Sprintf("an operation on less than 64 bits, %02x at %x", op, at))
	}
	o := m.operand(r, x, b)
	set := func(v uint64) { m.registers[o.register] = v; m.zero = v == 0 }
	switch op {
	case 0x8b:
		m.registers[o.reg] = m.get(o)
	case 0x89:
		m.registers[o.register] = m.registers[o.reg]
	case 0xc7:
		m.registers[o.register] = uint64(m.fetch32())
	case 0x8d:
		m.registers[o.reg] = o.address()
	case 0x03:
		m.registers[o.reg] += m.get(o)
		m.zero = m.registers[o.reg] == 0
	case 0x01:
		set(m.get(o) + m.registers[o.reg])
	case 0x81:
		set(m.get(o) + uint64(m.immediate(o, 0, m.fetch32())))
	case 0x83:
		set(m.get(o) + uint64(m.immediate(o, 0, int64(int8(m.fetch())))))
	case 0xc1:
		set(m.get(o) << m.immediate(o, 4, int64(m.fetch())))
	case 0xff:
		m.immediate(o, 1, 0)
		set(m.get(o) - 1)
	default:
		panic(fmt.Sprintf("unknown instruction %02x at %x", op, at))
	}
}

// immediate checks which operation of a group it is.
func (m *tileMachine) immediate(o operand, group int, value int64) int64 {
	if o.reg&7 != group {
		panic(fmt.Sprintf("operation %d of a group where %d is expected", o.reg&7, group))
	}
	return value
}

// vex executes an instruction on tiles.
func (m *tileMachine) vex(at uintptr) {
	first, second, op := int(m.fetch()), int(m.fetch()), m.fetch()
	r, x, b := 1-first>>7, 1-first>>6&1, 1-first>>5&1
	vvvv, prefix := 15-second>>3&15, second&3
	if first&31 != 2 || second>>7 != 0 || second>>2&1 != 0 || r != 0 {
		panic(fmt.Sprintf("VEX %02x %02x at %x is no instruction on tiles", first, second, at))
	}
	o := m.operand(r, x, b)
	name := [3]int{int(op), prefix, min(o.register, 0)}
	if op != 0x5c && vvvv != 0 {
		panic("VEX.vvvv must be 1111")
	}
	switch name {
	case [3]int{0x49, 0, -1}:
		m.configure(m.memory(o.address(), 64, false))
	case [3]int{0x49, 0, 0}: // TILERELEASE
		if o.reg != 0 || o.register != 0 {
			panic("no TILERELEASE")
		}
		m.configured = false
	case [3]int{0x4b, 3, -1}, [3]int{0x4b, 2, -1}:
		m.move(o, prefix == 2)
	case [3]int{0x5c, 2, 0}:
		m.dot(o.reg, o.register, vvvv)
	default:
		panic(fmt.Sprintf("unknown tile instruction %v at %x", name, at))
	}
}

// configure is LDTILECFG.
func (m *tileMachine) configure(c []byte) {
	if c[0] != 1 || c[1] != 0 {
		panic("palette 1 from row 0 is what kernels use")
	}
	for i, b := range c {
		reserved := i >= 2 && i < 16 || i >= 32 && i < 48 || i >= 56
		if reserved && b != 0 {
			panic(fmt.Sprintf("reserved byte %d of the configuration is %d", i, b))
		}
	}
	m.configured = true
	for i := range m.tiles {
		t := &m.tiles[i]
		*t = modelTile{rows: int(c[48+i]), bytes: int(binary.LittleEndian.Uint16(c[16+2*i:]))}
		if t.rows > 16 || t.bytes > 64 || (t.rows == 0) != (t.bytes == 0) {
			panic(fmt.Sprintf("tile %d of %d rows of %d bytes", i, t.rows, t.bytes))
		}
	}
}

// tile is a configured one.
func (m *tileMachine) tile(i int) *modelTile {
	if !m.configured || m.tiles[i].rows == 0 {
		panic(fmt.Sprintf("tile %d is not configured", i))
	}
	return &m.tiles[i]
}

// move is TILELOADD and TILESTORED.
func (m *tileMachine) move(o operand, store bool) {
	if !o.sib {
		panic("a tile's address needs SIB")
	}
	t := m.tile(o.reg)
	for row := range t.rows {
		address := o.base + uint64(o.disp) + uint64(row)*o.index
		bytes := m.memory(address, t.bytes, store)
		if store {
			copy(bytes, t.data[row][:])
			continue
		}
		t.data[row] = [64]byte{}
		copy(t.data[row][:], bytes)
	}
}

// dot is TDPBF16PS: sum += x·w.
func (m *tileMachine) dot(sum, x, w int) {
	if sum == x || sum == w || x == w {
		panic("TDPBF16PS of one tile twice")
	}
	s, a, b := m.tile(sum), m.tile(x), m.tile(w)
	if s.rows != a.rows || a.bytes != 4*b.rows || s.bytes != b.bytes {
		panic("TDPBF16PS of tiles that do not fit")
	}
	for row := range s.rows {
		for column := range s.bytes / 4 {
			even, odd := float32(0), float32(0)
			for k := range a.bytes / 4 {
				even = fmaFlush(bfloatAt(&a.data[row], 2*k), bfloatAt(&b.data[k], 2*column), even)
				odd = fmaFlush(bfloatAt(&a.data[row], 2*k+1), bfloatAt(&b.data[k], 2*column+1), odd)
			}
			c := (*float32)(unsafe.Pointer(&s.data[row][4*column]))
			*c = addFlush(*c, addFlush(even, odd))
		}
	}
}

// bfloatAt is number i of a row, flushed.
func bfloatAt(row *[64]byte, i int) float32 {
	return flush(bfloatToFloat(binary.LittleEndian.Uint16(row[2*i:])))
}
