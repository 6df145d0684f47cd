package main

import "fmt"

// quantHeights256 are the rows of the kernels below.
var quantHeights256 = []int{1, 2, 3, 4}

// quantRows256 is quantRows in registers of 32 bytes, one half of the panel after the other. Y0…Y3
// hold the integer sums of a block by row, Y4…Y7 those of a run, see quantRuns; the chains lie in
// C, whose rows R14 and, of row 3, AX lead to. Y8 holds the weights of four steps, Y9 what they are
// taken from, Y10 activations. Y13 and Y14 hold the masks, or of full bytes their sign, Y15 ones.
// R10 is the head of the scales, R11 the factors of the block under way.
func (g *generator) quantRows256(s quantSet, format, rows int) {
	f := formats[format]
	name := fmt.Sprintf("quantRows%sx%d%s", f.name, rows, s.isa)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of one %s panel with 8-bit activations.", rows, f.name), 8)
	g.p("MOVQ t+0(FP), AX")
	g.quantStart(rows)
	g.rowChains256(rows)
	g.broadcast(ymm, "byteLow4", 13)
	g.broadcast(ymm, map[int]string{5: "byteBit4", 6: "byteBits45", 8: "byteSign"}[f.bits], 14)
	if !s.vnni {
		g.broadcast(ymm, "wordOne", 15)
	}
	if f.scaleFactors > 0 {
		g.label("%s_super", name)
		g.p("MOVQ R10, R11")
		g.p("MOVQ $8, BX")
	}
	g.label("%s_loop", name)
	for at := 0; at < f.quantBytes; at += 64 {
		g.p("PREFETCHT0 %d(DI)", ahead+at)
	}
	halves := max(1, f.factorsPerBlock)
	for h := range halves {
		for p := range 2 {
			for r := range rows {
				if f.bits == 8 && !s.vnni {
					g.p("VPXOR Y%d, Y%d, Y%d", r, r, r)
				} else {
					g.p("VPBROADCASTD %s, Y%d", metaAddress(r, metaStart+4*h), r)
				}
			}
			for _, run := range rowRuns(f.bits, h) {
				g.rowRun256(s, format, rows, p, run)
			}
			g.rowScale256(format, rows, h, p)
		}
	}
	g.rowNext256(name, format, rows)
	g.p("VZEROUPPER")
	g.p("RET")
}

// rowChains256 copies the chains' starts to C and leaves its address and its rows' distance in R14
// and R12, the blocks in CX.
func (g *generator) rowChains256(rows int) {
	g.p("MOVQ %d(AX), BX", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	g.p("MOVQ %d(AX), R14", quantC)
	g.p("MOVQ %d(AX), R12", quantLDC)
	g.p("MOVQ %d(AX), R11", quantBlocks)
	if rows > 3 {
		g.p("LEAQ (R12)(R12*2), AX")
		g.p("ADDQ R14, AX")
	}
	for r := range rows {
		for p := range 2 {
			g.p("VMOVUPS %d(BX), Y%d", 32*p, p)
			g.p("VMOVUPS Y%d, %s", p, chainAddress(r, 32*p))
		}
		if r+1 < rows {
			g.p("ADDQ CX, BX")
		}
	}
	g.p("MOVQ R11, CX")
}

func chainAddress(r, offset int) string {
	return fmt.Sprintf("%d%s", offset,
		[4]string{"(R14)", "(R14)(R12*1)", "(R14)(R12*2)", "(AX)"}[r])
}

// rowRuns are the groups of half a block of 6-bit integers, or of a block of others, cut into runs:
// those whose bits lie in the same byte are neighbours. Eight sums of 4-bit integers fit into 16
// bits, because 8·2·15·127 is below 2¹⁵; of the others see quantRuns.
func rowRuns(bits, half int) [][]int {
	switch bits {
	case 4:
		return [][]int{{0, 4, 1, 5, 2, 6, 3, 7}}
	case 5:
		return [][]int{{0, 4, 1, 5}, {2, 6, 3, 7}}
	case 6:
		return [][]int{{4 * half, 4*half + 1}, {4*half + 2, 4*half + 3}}
	}
	return [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}
}

// rowRun256 adds the groups of a run, of one half of the panel, to the integer sums.
func (g *generator) rowRun256(s quantSet, format, rows, p int, run []int) {
	f := formats[format]
	for i, group := range run {
		g.rowWeights256(s, f.bits, group, p)
		for r := range rows {
			g.p("VPBROADCASTD %s, Y10", quantAddress(r, 4*group))
			switch {
			case s.vnni:
				g.dotBytes(r, 10, 8)
			case f.bits == 8:
				g.p("VPSIGNB Y9, Y10, Y10")
				g.p("VPMADDUBSW Y10, Y8, Y10")
				g.p("VPMADDWD Y15, Y10, Y10")
				g.p("VPADDD Y10, Y%d, Y%d", r, r)
			case i == 0:
				g.p("VPMADDUBSW Y10, Y8, Y%d", 4+r)
			default:
				g.p("VPMADDUBSW Y10, Y8, Y10")
				g.p("VPADDW Y10, Y%d, Y%d", 4+r, 4+r)
			}
		}
	}
	if s.vnni || f.bits == 8 {
		return
	}
	for r := range rows {
		g.p("VPMADDWD Y15, Y%d, Y%d", 4+r, 4+r)
		g.p("VPADDD Y%d, Y%d, Y%d", 4+r, r, r)
	}
}

// rowWeights256 unpacks half a group to Y8. Of full bytes without a product of all four, Y8 holds
// the magnitudes and Y9 the integers.
func (g *generator) rowWeights256(s quantSet, bits, group, p int) {
	switch {
	case bits == 8 && s.vnni:
		g.p("VMOVDQU %d(DI), Y8", 64*group+32*p)
		return
	case bits == 8:
		g.p("VPXOR %d(DI), Y14, Y9", 64*group+32*p)
		g.p("VPABSB Y9, Y8")
		return
	}
	if group < 4 || bits == 6 {
		g.p("VMOVDQU %d(DI), Y9", 64*(group%4)+32*p)
	}
	if group < 4 {
		g.p("VPAND Y13, Y9, Y8")
	} else {
		g.p("VPSRLW $4, Y9, Y8")
		g.p("VPAND Y13, Y8, Y8")
	}
	from, shift := 256, 4-group
	switch bits {
	case 4:
		return
	case 6:
		from, shift = 256+64*(group/4), 4-2*(group%4)
	}
	if shift == 0 {
		g.p("VPAND %d(DI), Y14, Y12", from+32*p)
	} else {
		g.p("VMOVDQU %d(DI), Y12", from+32*p)
		g.p("%s $%d, Y12, Y12", map[bool]string{true: "VPSLLW", false: "VPSRLW"}[shift > 0],
			max(shift, -shift))
		g.p("VPAND Y14, Y12, Y12")
	}
	g.p("VPOR Y12, Y8, Y8")
}

// rowScale256 adds the scaled sums to the chains of half a panel, and what the least values add.
func (g *generator) rowScale256(format, rows, half, p int) {
	f := formats[format]
	switch {
	case f.scaleFactors == 0:
		g.p("VCVTPH2PS %d(R10), Y8", 16*p)
		if f.least {
			g.p("VCVTPH2PS %d(R10), Y9", 32+16*p)
		}
	case f.least:
		g.factor256("VPMOVZXBD", 64+8*p, 16*p, 8)
		g.factor256("VPMOVZXBD", 64+16*8+8*p, 32+16*p, 9)
	default:
		g.factor256("VPMOVSXBD", 32+16*half+8*p, 16*p, 8)
	}
	for r := range rows {
		g.p("VBROADCASTSS %s, Y10", metaAddress(r, metaScale))
		g.p("VMULPS Y10, Y8, Y10")
		g.p("VCVTDQ2PS Y%d, Y%d", r, r)
		g.p("VMOVUPS %s, Y11", chainAddress(r, 32*p))
		g.p("VFMADD231PS Y10, Y%d, Y11", r)
		if f.least {
			g.p("VBROADCASTSS %s, Y10", metaAddress(r, metaSum))
			if f.scaleFactors > 0 { // the least values are subtracted
				g.p("VFNMADD231PS Y9, Y10, Y11")
			} else {
				g.p("VFMADD231PS Y9, Y10, Y11")
			}
		}
		g.p("VMOVUPS Y11, %s", chainAddress(r, 32*p))
	}
}

// factor256 loads eight factors and multiplies them by their f16 in the head.
func (g *generator) factor256(extend string, at, head, register int) {
	g.p("%s %d(R11), Y%d", extend, at, register)
	g.p("VCVTPH2PS %d(R10), Y11", head)
	g.p("VCVTDQ2PS Y%d, Y%d", register, register)
	g.p("VMULPS Y11, Y%d, Y%d", register, register)
}

// rowNext256 goes to the next block, or on.
func (g *generator) rowNext256(name string, format, rows int) {
	f := formats[format]
	g.p("ADDQ $%d, DI", f.quantBytes)
	for i, base := range []string{"SI", "R9"} {
		if rows > 3*i {
			g.p("ADDQ $32, %s", base)
			g.p("ADDQ $%d, %s", metaSize, []string{"R13", "R15"}[i])
		}
	}
	if f.scaleFactors == 0 {
		g.p("ADDQ $%d, R10", f.scaleBytes)
		g.p("DECQ CX")
		g.p("JNZ %s_loop", name)
		return
	}
	g.p("ADDQ $%d, R11", 16*f.factorsPerBlock)
	g.p("DECQ BX")
	g.p("JNZ %s_loop", name)
	g.p("ADDQ $%d, R10", f.scaleBytes)
	g.p("SUBQ $8, CX")
	g.p("JNZ %s_super", name)
}
