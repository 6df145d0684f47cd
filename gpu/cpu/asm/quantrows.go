package main

import "fmt"

// quantHeights512 are the rows of the kernels below.
var quantHeights512 = []int{1, 2, 3, 4, 6, 8}

// ahead is how many bytes of weights the kernels below ask for in advance.
const ahead = 4096

// quantRows writes the kernel of a few rows × 16 outputs on AVX-512 that reads a panel as it is
// packed, from end to end: where there are few rows, the weights' way through memory sets the pace.
// Z0… hold the integer sums of a block by row, Z8… the chains. Z31 and Z30 hold the masks, Z27 and
// Z28 d and -m of a block of 256.
func (g *generator) quantRows(format, rows int) {
	f := formats[format]
	name := fmt.Sprintf("quantRows%sx%dAVX512", f.name, rows)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of one %s panel with 8-bit activations.", rows, f.name), 8)
	g.p("MOVQ t+0(FP), AX")
	g.quantStart(rows)
	if rows > 6 {
		g.p("LEAQ (R8)(R8*2), R11")
		g.p("LEAQ (R9)(R11*1), R11")
		g.p("LEAQ (DX)(DX*2), R12")
		g.p("LEAQ (R15)(R12*1), R12")
	}
	g.p("MOVQ %d(AX), R14", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	for r := range rows {
		g.p("VMOVUPS (R14), Z%d", 8+r)
		g.p("ADDQ CX, R14")
	}
	g.broadcast(zmm, "byteLow4", 31)
	g.broadcast(zmm, map[int]string{5: "byteBit4", 6: "byteBits45"}[f.bits], 30)
	g.p("MOVQ %d(AX), CX", quantBlocks)
	if f.scaleFactors > 0 {
		g.label("%s_super", name)
		g.p("VCVTPH2PS (R10), Z27")
		if f.least {
			g.p("VCVTPH2PS 32(R10), Z28")
			g.p("VPXORD.BCST %s, Z28, Z28", constant("sign"))
		}
		g.p("MOVQ $8, BX")
	}
	g.label("%s_loop", name)
	for at := 0; at < f.quantBytes; at += 64 {
		g.p("PREFETCHT0 %d(DI)", ahead+at)
	}
	halves := max(1, f.factorsPerBlock)
	for h := range halves {
		for r := range rows {
			g.p("VPBROADCASTD %s, Z%d", metaAddress(r, metaStart+4*h), r)
		}
		g.rowGroups(format, rows, h, halves)
		g.rowScale(format, rows, h)
	}
	g.rowNext(name, format, rows)
	g.p("MOVQ %d(AX), R14", quantC)
	g.p("MOVQ %d(AX), CX", quantLDC)
	for r := range rows {
		g.p("VMOVUPS Z%d, (R14)", 8+r)
		g.p("ADDQ CX, R14")
	}
	g.p("VZEROUPPER")
	g.p("RET")
}

// rowGroups adds the groups of one half of a block, or of all of it, to the integer sums.
func (g *generator) rowGroups(format, rows, half, halves int) {
	f := formats[format]
	dots := func(group, register int) {
		for r := range rows {
			g.p("VPDPBUSD.BCST %s, Z%d, Z%d", quantAddress(r, 4*group), register, r)
		}
	}
	if f.bits == 8 {
		for group := range 8 {
			g.p("VMOVDQU64 %d(DI), Z20", 64*group)
			dots(group, 20)
		}
		return
	}
	for i := range 4 {
		g.p("VMOVDQU64 %d(DI), Z20", 64*i)
		if halves == 1 || half == 1 {
			g.p("VPSRLW $4, Z20, Z21")
			g.p("VPANDD Z31, Z21, Z21")
			g.rowHighBits(f.bits, i+4, 21)
		}
		if halves == 1 || half == 0 {
			g.p("VPANDD Z31, Z20, Z20")
			g.rowHighBits(f.bits, i, 20)
			dots(i, 20)
		}
		if halves == 1 || half == 1 {
			dots(i+4, 21)
		}
	}
}

// rowHighBits adds what lies above the lower four bits of a group.
func (g *generator) rowHighBits(bits, group, register int) {
	from, shift := 256, 4-group
	switch bits {
	case 4:
		return
	case 6:
		from, shift = 256+64*(group/4), 4-2*(group%4)
	}
	switch {
	case shift > 0:
		g.p("VPSLLW $%d, %d(DI), Z22", shift, from)
	case shift < 0:
		g.p("VPSRLW $%d, %d(DI), Z22", -shift, from)
	default:
		g.p("VMOVDQU64 %d(DI), Z22", from)
	}
	g.p("VPTERNLOGD $0xf8, Z30, Z22, Z%d", register) // itself | Z22 & Z30
}

// rowScale adds the scaled sums to the chains, and what the least values add.
func (g *generator) rowScale(format, rows, half int) {
	f := formats[format]
	switch {
	case f.scaleFactors == 0:
		g.p("VCVTPH2PS (R10), Z24")
		if f.least {
			g.p("VCVTPH2PS 32(R10), Z25")
		}
	case f.least:
		g.p("VPMOVZXBD 64(R10), Z24")
		g.p("VPMOVZXBD %d(R10), Z25", 64+16*8)
		g.p("VCVTDQ2PS Z24, Z24")
		g.p("VCVTDQ2PS Z25, Z25")
		g.p("VMULPS Z27, Z24, Z24")
		g.p("VMULPS Z28, Z25, Z25")
	default:
		g.p("VPMOVSXBD %d(R10), Z24", 32+16*half)
		g.p("VCVTDQ2PS Z24, Z24")
		g.p("VMULPS Z27, Z24, Z24")
	}
	for r := range rows {
		g.p("VMULPS.BCST %s, Z24, Z26", metaAddress(r, metaScale))
		g.p("VCVTDQ2PS Z%d, Z%d", r, r)
		g.p("VFMADD231PS Z26, Z%d, Z%d", r, 8+r)
	}
	if !f.least {
		return
	}
	for r := range rows {
		g.p("VFMADD231PS.BCST %s, Z25, Z%d", metaAddress(r, metaSum), 8+r)
	}
}

// rowNext goes to the next block, or on.
func (g *generator) rowNext(name string, format, rows int) {
	f := formats[format]
	g.p("ADDQ $%d, DI", f.quantBytes)
	for i, base := range []string{"SI", "R9", "R11"} {
		if rows > 3*i {
			g.p("ADDQ $32, %s", base)
			g.p("ADDQ $%d, %s", metaSize, []string{"R13", "R15", "R12"}[i])
		}
	}
	if f.scaleFactors == 0 {
		g.p("ADDQ $%d, R10", f.scaleBytes)
		g.p("DECQ CX")
		g.p("JNZ %s_loop", name)
		return
	}
	step := 16 * f.factorsPerBlock
	g.p("ADDQ $%d, R10", step)
	g.p("DECQ BX")
	g.p("JNZ %s_loop", name)
	g.p("ADDQ $%d, R10", f.scaleBytes-8*step)
	g.p("SUBQ $8, CX")
	g.p("JNZ %s_super", name)
}
