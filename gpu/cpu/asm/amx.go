package main

import (
	"fmt"
	"strings"
)

// Go's assembler does not know AMX. Its instructions are written as bytes, with their names beside
// them, as Intel's manual encodes them (Software Developer's Manual, volume 2): VEX.128, map 0F38,
// W0.

// Prefixes of VEX, and opcodes.
const (
	prefixNone, prefixF3, prefixF2 = 0, 2, 3
	opConfig, opMove, opDotBF16    = 0x49, 0x4b, 0x5c
)

// Offsets of the fields of type amxCall in micro_amx.go.
const (
	amxConfig, amxStretches, amxX, amxXNext = 0, 8, 16, 24
	amxW, amxWNext, amxC, amxLDC            = 32, 40, 48, 56
	amxInit, amxLDI, amxXPlane, amxWPlane   = 64, 72, 80, 88
)

// registers are the general ones by number.
var registers = map[string]int{"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SI": 6, "DI": 7, "R8": 8,
	"R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13}

// bytes writes an instruction that the assembler does not know.
func (g *generator) bytes(code []int, comment string) {
	var text []string
	for _, b := range code {
		text = append(text, fmt.Sprintf("BYTE $0x%02x", b))
	}
	g.p("%s // %s", strings.Join(text, "; "), comment)
}

// vexTiles is an instruction on tiles alone: reg, vvvv and rm are their numbers.
func vexTiles(prefix, op, reg, vvvv, rm int) []int {
	return []int{0xc4, 0xe2, (15-vvvv)<<3 | prefix, op, 0xc0 | reg<<3 | rm}
}

// tileAddress is disp(base)(index*1); without an index (base).
type tileAddress struct {
	base, index string
	disp        int
}

// vexMemory is one on a tile and memory.
func vexMemory(prefix, op, tile int, at tileAddress) []int {
	b, x, disp := registers[at.base], 4, at.disp // an index of 4 is none
	if at.index != "" {
		x = registers[at.index]
	}
	return []int{0xc4, 0x82 | (1-x>>3)<<6 | (1-b>>3)<<5, 15<<3 | prefix, op, 0x84 | tile<<3,
		x&7<<3 | b&7, disp & 255, disp >> 8 & 255, disp >> 16 & 255, disp >> 24 & 255}
}

func (g *generator) loadConfig(base string) {
	g.bytes(vexMemory(prefixNone, opConfig, 0, tileAddress{base: base}), "LDTILECFG ("+base+")")
}

func (g *generator) loadTile(tile int, base, stride string, disp int) {
	g.bytes(vexMemory(prefixF2, opMove, tile, tileAddress{base, stride, disp}),
		fmt.Sprintf("TILELOADD %d(%s)(%s*1), T%d", disp, base, stride, tile))
}

func (g *generator) storeTile(tile int, base, stride string, disp int) {
	g.bytes(vexMemory(prefixF3, opMove, tile, tileAddress{base, stride, disp}),
		fmt.Sprintf("TILESTORED T%d, %d(%s)(%s*1)", tile, disp, base, stride))
}

func (g *generator) dotTiles(to, x, w int) {
	g.bytes(vexTiles(prefixF3, opDotBF16, to, w, x),
		fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", w, x, to))
}

func (g *generator) releaseTiles() {
	g.bytes(vexTiles(prefixNone, opConfig, 0, 0, 0), "TILERELEASE")
}

// amx writes the tile kernels, and what makes their operands.
func (g *generator) amx() {
	for i := range tdpForms {
		g.amxTiles(i, 1)
		g.amxTiles(i, 2)
		g.amxWiden(i)
	}
	g.amxSplit()
	g.function("readXCR0", "() (low uint32)", "reads which state the system keeps.", 4)
	g.p("XORL CX, CX")
	g.p("XGETBV")
	g.p("MOVL AX, low+0(FP)")
	g.p("RET")
	g.amxTable()
}

// amxTable writes where the code of the tile kernels lies, for the test that reads it.
func (g *generator) amxTable() {
	fmt.Fprintf(&g.code, "\n")
	for i, f := range tdpForms {
		for blocks := 1; blocks <= 2; blocks++ {
			fmt.Fprintf(&g.code, "DATA ·amxTable<>+%d(SB)/8, $·%s(SB)\n", 16*i+8*(blocks-1),
				amxName(f.dtype, blocks))
		}
	}
	fmt.Fprintf(&g.code, "GLOBL ·amxTable<>(SB), RODATA, $%d\n", 16*len(tdpForms))
	g.function("amxCode", "(kernel int) (address uintptr)",
		"is where a tile kernel's code lies: 2·type + blocks - 1.", 16)
	g.p("MOVQ kernel+0(FP), CX")
	g.p("LEAQ ·amxTable<>(SB), AX")
	g.p("MOVQ (AX)(CX*8), AX")
	g.p("MOVQ AX, address+8(FP)")
	g.p("RET")
}

// amxTables lists the kernels by type.
func (g *generator) amxTables(t *strings.Builder) {
	fmt.Fprintf(t, "\n// amxTiles are kernels by type and blocks of rows.\n")
	fmt.Fprintf(t, "var amxTiles = [plainTypes][2]func(*amxCall){\n")
	for _, f := range tdpForms {
		fmt.Fprintf(t, "\tgpu.%s: {%s, %s},\n", f.dtype, amxName(f.dtype, 1), amxName(f.dtype, 2))
	}
	fmt.Fprintf(t, "}\n\n// amxWideners make planes of pairs of steps, by type.\n")
	fmt.Fprintf(t, "var amxWideners = [plainTypes]func(*tdpWiden){\n")
	for _, f := range tdpForms {
		fmt.Fprintf(t, "\tgpu.%s: amxWiden%s,\n", f.dtype, f.dtype)
	}
	fmt.Fprintf(t, "}\n")
}

func amxName(dtype string, blocks int) string {
	return fmt.Sprintf("amx%sx%d", dtype, 16*blocks)
}

// amxTiles writes the kernel of one or two blocks of up to 16 rows by two panels: T0 to T3 hold the
// outputs, T4 and T5 the activations, T6 and T7 the weights. The configuration is loaded and
// released within the call, which the scheduler cannot interrupt.
func (g *generator) amxTiles(form, blocks int) {
	f := tdpForms[form]
	name := amxName(f.dtype, blocks)
	g.function(name, "(c *amxCall)", fmt.Sprintf("computes up to %d rows of two %s panels.",
		16*blocks, f.dtype), 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), DX", amxConfig)
	g.loadConfig("DX")
	g.amxOutputs(blocks, amxInit, g.loadTile)
	x, w := []string{"SI", "R12"}[:blocks], []string{"DI", "R13"}
	g.p("MOVQ %d(AX), SI", amxX)
	g.p("MOVQ %d(AX), R12", amxXNext)
	g.p("ADDQ SI, R12")
	g.p("MOVQ %d(AX), DI", amxW)
	g.p("MOVQ %d(AX), R13", amxWNext)
	g.p("ADDQ DI, R13")
	g.p("MOVQ %d(AX), R9", amxXPlane)
	g.p("MOVQ %d(AX), R11", amxWPlane)
	g.p("MOVQ $64, R10")
	g.p("MOVQ %d(AX), CX", amxStretches)
	g.label("%s_stretch", name)
	loaded := [2]int{-1, -1}
	for _, p := range f.products {
		g.amxOperands(4, x, "R9", p[0], &loaded[0])
		g.amxOperands(6, w, "R11", p[1], &loaded[1])
		for block := range blocks {
			g.dotTiles(2*block, 4+block, 6)
			g.dotTiles(2*block+1, 4+block, 7)
		}
	}
	for _, r := range append(x, w...) {
		g.p("ADDQ $1024, %s", r)
	}
	g.p("DECQ CX")
	g.p("JNZ %s_stretch", name)
	g.amxOutputs(blocks, amxC, g.storeTile)
	g.releaseTiles()
	g.p("VZEROUPPER")
	g.p("RET")
}

// amxOutputs goes through the tiles of outputs in memory, whose address and distance from row to
// row are two fields of the call that follow one another.
func (g *generator) amxOutputs(
	blocks, field int, move func(tile int, base, stride string, disp int),
) {
	g.p("MOVQ %d(AX), DX", field)
	g.p("MOVQ %d(AX), BX", field+8)
	for block := range blocks {
		if block > 0 {
			g.p("MOVQ BX, R8")
			g.p("SHLQ $4, R8")
			g.p("ADDQ R8, DX")
		}
		move(2*block, "DX", "BX", 0)
		move(2*block+1, "DX", "BX", 64)
	}
}

// amxOperands loads tiles from first on with a plane, unless they hold it.
func (g *generator) amxOperands(first int, bases []string, distance string, plane int, held *int) {
	if *held == plane {
		return
	}
	*held = plane
	for i, base := range bases {
		if plane > 0 {
			g.p("LEAQ (%s)(%s*%d), R8", base, distance, plane)
			base = "R8"
		}
		g.loadTile(first+i, base, "R10", 0)
	}
}

// amxWiden writes the kernel that makes planes of pairs of steps of a panel, [pairs][16][2] in
// bfloat16.
func (g *generator) amxWiden(form int) {
	f := tdpForms[form]
	name := "amxWiden" + f.dtype
	g.function(name, "(c *tdpWiden)", "is amxWidenGo for "+f.dtype+".", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", planesN)
	g.p("MOVQ %d(AX), SI", planesFrom)
	g.p("MOVQ %d(AX), DI", planesTo)
	g.p("MOVQ %d(AX), R8", planesPlane)
	g.p("VPBROADCASTD %s, Z15", constant("upperHalf"))
	g.label("%s_loop", name)
	for odd := range 2 {
		g.load512(f.dtype, fmt.Sprintf("%d(SI)", odd*sizes[f.dtype]), odd)
	}
	for p := range f.wPlanes {
		for odd := range 2 {
			g.p("VPANDD Z15, Z%d, Z%d", odd, 2+odd)
			g.p("VSUBPS Z%d, Z%d, Z%d", 2+odd, odd, odd)
		}
		g.p("VPSRLD $16, Z2, Z2")
		g.p("VPORD Z2, Z3, Z3")
		g.p("VMOVDQU32 Z3, (DI)%s", [3]string{"", "(R8*1)", "(R8*2)"}[p])
	}
	g.p("ADDQ $%d, SI", 2*sizes[f.dtype])
	g.p("ADDQ $64, DI")
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// amxSplit writes the kernel that makes planes of a row of activations in bfloat16: those of 32
// numbers lie in a row of a tile, the next 32 a tile further.
func (g *generator) amxSplit() {
	const name = "amxSplitAVX512"
	g.function(name, "(c *tdpSplit)", "is amxSplitGo for whole stretches.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", splitN)
	g.p("MOVQ %d(AX), SI", splitFrom)
	g.p("MOVQ %d(AX), DI", splitTo)
	g.p("MOVQ %d(AX), R8", splitPlane)
	g.roundingConstants(zmm)
	g.label("%s_loop", name)
	for half := range 2 {
		g.p("VMOVUPS %d(SI), Z0", 64*half)
		g.p("MOVQ %d(AX), R9", splits)
		g.p("MOVQ DI, DX")
		g.label("%s_plane%d", name, half)
		g.roundPlane(zmm)
		g.p("VPSRLD $16, Z1, Z2")
		g.p("VPMOVDW Z2, %d(DX)", 32*half)
		g.p("VSUBPS Z1, Z0, Z0")
		g.p("ADDQ R8, DX")
		g.p("DECQ R9")
		g.p("JNZ %s_plane%d", name, half)
	}
	g.p("ADDQ $128, SI")
	g.p("ADDQ $1024, DI")
	g.p("SUBQ $32, CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}
