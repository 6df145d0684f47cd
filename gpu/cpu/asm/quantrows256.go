package main

import "fmt"

// quantHeights256 are the rows of the kernels below.
var quantHeights256 = []int{1, 2}

// quantRows256 is quantRows on AVX2. Y0…Y3 hold the integer sums of a block, by row and half of the
// panel, Y4…Y7 the chains. Y13 and Y14 hold the masks, or of full bytes their sign, Y15 ones. R10
// is the head of the scales, R11 the factors of the block under way.
func (g *generator) quantRows256(format, rows int) {
	f := formats[format]
	name := fmt.Sprintf("quantRows%sx%dAVX2", f.name, rows)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of one %s panel with 8-bit activations.", rows, f.name), 8)
	g.p("MOVQ t+0(FP), AX")
	g.quantStart(rows)
	g.p("MOVQ %d(AX), R14", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	for i := range 2 * rows {
		g.p("VMOVUPS %d(R14), Y%d", 32*(i%2), 4+i)
		if i%2 == 1 {
			g.p("ADDQ CX, R14")
		}
	}
	g.broadcast(ymm, "wordOne", 15)
	g.broadcast(ymm, "byteLow4", 13)
	g.broadcast(ymm, map[int]string{5: "byteBit4", 6: "byteBits45", 8: "byteSign"}[f.bits], 14)
	g.p("MOVQ %d(AX), CX", quantBlocks)
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
		for i := range 2 * rows {
			if f.bits == 8 {
				g.p("VPXOR Y%d, Y%d, Y%d", i, i, i)
			} else {
				g.p("VPBROADCASTD %s, Y%d", metaAddress(i/2, metaStart+4*h), i)
			}
		}
		g.rowGroups256(format, rows, h, halves)
		g.rowScale256(format, rows, h)
	}
	g.rowNext256(name, format)
	g.p("MOVQ %d(AX), R14", quantC)
	g.p("MOVQ %d(AX), CX", quantLDC)
	for i := range 2 * rows {
		g.p("VMOVUPS Y%d, %d(R14)", 4+i, 32*(i%2))
		if i%2 == 1 {
			g.p("ADDQ CX, R14")
		}
	}
	g.p("VZEROUPPER")
	g.p("RET")
}

// rowGroups256 adds the groups of one half of a block, or of all of it, to the integer sums.
func (g *generator) rowGroups256(format, rows, half, halves int) {
	f := formats[format]
	if f.bits == 8 {
		for i := range 16 {
			g.p("VPXOR %d(DI), Y14, Y12", 32*i)
			g.p("VPABSB Y12, Y8")
			for r := range rows {
				g.p("VPBROADCASTD %s, Y10", quantAddress(r, 4*(i/2)))
				g.p("VPSIGNB Y12, Y10, Y11")
				g.dot256(8, 11, 2*r+i%2)
			}
		}
		return
	}
	for i := range 8 {
		group, p := i/2, i%2
		g.p("VMOVDQU %d(DI), Y8", 32*i)
		if halves == 1 || half == 1 {
			g.p("VPSRLW $4, Y8, Y9")
			g.p("VPAND Y13, Y9, Y9")
			g.rowHighBits256(f.bits, group+4, p, 9)
			g.dots256(rows, group+4, p, 9)
		}
		if halves == 1 || half == 0 {
			g.p("VPAND Y13, Y8, Y8")
			g.rowHighBits256(f.bits, group, p, 8)
			g.dots256(rows, group, p, 8)
		}
	}
}

// dots256 adds one half of a group to the sums of each row.
func (g *generator) dots256(rows, group, p, weights int) {
	for r := range rows {
		g.p("VPBROADCASTD %s, Y10", quantAddress(r, 4*group))
		g.dot256(weights, 10, 2*r+p)
	}
}

// dot256 adds products of unsigned weights and signed activations to a sum; it uses Y11.
func (g *generator) dot256(weights, activations, sum int) {
	g.p("VPMADDUBSW Y%d, Y%d, Y11", activations, weights)
	g.p("VPMADDWD Y15, Y11, Y11")
	g.p("VPADDD Y11, Y%d, Y%d", sum, sum)
}

// rowHighBits256 adds what lies above the lower four bits of half a group.
func (g *generator) rowHighBits256(bits, group, p, register int) {
	from, shift := 256, 4-group
	switch bits {
	case 4:
		return
	case 6:
		from, shift = 256+64*(group/4), 4-2*(group%4)
	}
	g.p("VMOVDQU %d(DI), Y12", from+32*p)
	if shift > 0 {
		g.p("VPSLLW $%d, Y12, Y12", shift)
	} else if shift < 0 {
		g.p("VPSRLW $%d, Y12, Y12", -shift)
	}
	g.p("VPAND Y14, Y12, Y12")
	g.p("VPOR Y12, Y%d, Y%d", register, register)
}

// rowScale256 adds the scaled sums to the chains, and what the least values add.
func (g *generator) rowScale256(format, rows, half int) {
	f := formats[format]
	for p := range 2 {
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
			g.p("VCVTDQ2PS Y%d, Y%d", 2*r+p, 2*r+p)
			g.p("VFMADD231PS Y10, Y%d, Y%d", 2*r+p, 4+2*r+p)
		}
		if !f.least {
			continue
		}
		for r := range rows {
			g.p("VBROADCASTSS %s, Y10", metaAddress(r, metaSum))
			if f.scaleFactors > 0 { // the least values are subtracted
				g.p("VFNMADD231PS Y9, Y10, Y%d", 4+2*r+p)
			} else {
				g.p("VFMADD231PS Y9, Y10, Y%d", 4+2*r+p)
			}
		}
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
func (g *generator) rowNext256(name string, format int) {
	f := formats[format]
	g.p("ADDQ $%d, DI", f.quantBytes)
	g.p("ADDQ $32, SI")
	g.p("ADDQ $%d, R13", metaSize)
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
