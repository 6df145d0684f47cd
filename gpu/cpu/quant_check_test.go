package cpu

import (
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/kvrelay/engine/gpu"
)

// TestBytesAreCheckedAtTheStart: a processor whose products of four bytes saturate, or take the
// wrong operand for the signed one, is found, in tiles and in kernels for a few rows.
func TestBytesAreCheckedAtTheStart(t *testing.T) {
	plain := func(dot func(w uint8, x int8, sum int32) int32) func(rows int) func(*quantTile) {
		return func(rows int) func(*quantTile) {
			return func(c *quantTile) { bytesTwin(c, rows, pairPanels, dot) }
		}
	}
	exact := plain(func(w uint8, x int8, sum int32) int32 { return sum + int32(w)*int32(x) })
	set := func(tiles func(rows int) func(*quantTile)) *quantMicro {
		m := goQuantMicro()
		for rows := 1; rows <= m.tall; rows++ {
			m.tiles[kindByte][rows] = tiles(rows)
		}
		return &m
	}
	if !set(exact).agrees() {
		t.Fatal("the plain form does not agree with itself")
	}
	for name, wrong := range map[string]func(w uint8, x int8, sum int32) int32{
		"16 bits": func(w uint8, x int8, sum int32) int32 {
			return max(-1<<15, min(1<<15-1, sum+int32(w)*int32(x)))
		},
		"signed weights": func(w uint8, x int8, sum int32) int32 {
			return sum + int32(int8(w))*int32(x)
		},
		"unsigned activations": func(w uint8, x int8, sum int32) int32 {
			return sum + int32(w)*int32(uint8(x))
		},
	} {
		if set(plain(wrong)).agrees() {
			t.Errorf("%s: was not found in tiles", name)
		}
		m := set(exact)
		m.rows[gpu.Q8_0][2] = func(c *quantTile) { packedTwin(c, 2, wrong) }
		if m.agrees() {
			t.Errorf("%s: was not found in kernels for a few rows", name)
		}
	}
	m := set(exact)
	m.rows[gpu.Q8_0][2] = func(c *quantTile) {
		packedTwin(c, 2, func(w uint8, x int8, sum int32) int32 { return sum + int32(w)*int32(x) })
	}
	if !m.agrees() {
		t.Error("the plain form for a few rows does not agree")
	}
}

// bytesTwin is a kernel for full bytes with a product of its own.
func bytesTwin(c *quantTile, rows, panels int, dot func(w uint8, x int8, sum int32) int32) {
	for r := range uintptr(rows) {
		for column := range uintptr(panels * panelRows) {
			p, lane := column/panelRows, column%panelRows
			sum := *(*float32)(unsafe.Add(c.init, r*c.ldi+4*column))
			for b := range uintptr(c.blocks) {
				meta := (*quantMeta)(unsafe.Add(c.meta, r*c.ldm+b*unsafe.Sizeof(quantMeta{})))
				s := *(*float32)(unsafe.Add(c.s, p*c.sPanel+4*(b*panelRows+lane)))
				n := meta.start[0]
				for k := range uintptr(quantBlock) {
					w := unsafe.Add(c.q, p*c.qPanel+b*8*groupBytes+k/4*groupBytes+4*lane+k%4)
					x := unsafe.Add(c.a, r*c.lda+b*quantBlock+k)
					n = dot(*(*uint8)(w), *(*int8)(x), n)
				}
				sum = fma32(float32(n), float32(s*meta.scale), sum)
			}
			*(*float32)(unsafe.Add(c.c, r*c.ldc+4*column)) = sum
		}
	}
}

// packedTwin is bytesTwin for one panel as it is packed, whose scales are f16.
func packedTwin(c *quantTile, rows int, dot func(w uint8, x int8, sum int32) int32) {
	scales := make([]float32, c.blocks*panelRows)
	for i, half := range unsafe.Slice((*uint16)(c.s), len(scales)) {
		scales[i] = halfToFloat(half)
	}
	wide := *c
	wide.s = unsafe.Pointer(&scales[0])
	bytesTwin(&wide, rows, 1, dot)
}

// TestWithoutAVXVNNI: a processor that has no such instructions is told so, and takes the next set.
func TestWithoutAVXVNNI(t *testing.T) {
	has := cpu.X86
	defer func() { cpu.X86 = has }()
	cpu.X86.HasAVX512VNNI = false
	avx2 := fastMicro(AVX2) != nil
	if has.HasAVXVNNI && avx2 {
		if isa, err := Check(Options{}); err != nil || isa != AVXVNNI {
			t.Errorf("without AVX-512 %q is taken, %v", isa, err)
		}
	}
	cpu.X86.HasAVXVNNI = false
	_, err := Open(Options{ISA: AVXVNNI})
	if err == nil || strings.Contains(err.Error(), "has avxvnni") ||
		!strings.Contains(err.Error(), `lacks the instructions of "avxvnni"; it has `) {
		t.Errorf("refused with %v", err)
	}
	if isa, err := Check(Options{}); err != nil || avx2 && isa != AVX2 {
		t.Errorf("without AVX-VNNI %q is taken, %v", isa, err)
	}
}
