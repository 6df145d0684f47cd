package main

import "fmt"

// The tallest tiles with 8-bit activations.
const quantRows512, quantRows256 = 6, 4

// quantTile512 writes the kernel of rows × 32 outputs on AVX-512. Z0…Z11 hold the integer sums of
// a block, for each row and panel, Z12…Z23 the chains. Z28 and Z29 hold the weights of four steps,
// later the scales; Z30 four activations in all lanes.
func (g *generator) quantTile512(kind string, rows int) {
	name := fmt.Sprintf("quant%sx%dAVX512", kind, rows)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of two panels with 8-bit activations.", rows), 8)
	g.p("MOVQ t+0(FP), AX")
	g.label("%s_tile", name)
	g.quantStart(rows)
	g.p("MOVQ %d(AX), BX", quantQPanel)
	g.p("ADDQ DI, BX")
	g.p("MOVQ %d(AX), R11", quantSPanel)
	g.p("MOVQ %d(AX), R14", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	for r := range rows {
		g.p("VMOVUPS (R14), Z%d", 12+2*r)
		g.p("VMOVUPS 64(R14), Z%d", 13+2*r)
		g.p("ADDQ CX, R14")
	}
	g.p("MOVQ %d(AX), CX", quantBlocks)
	g.label("%s_loop", name)
	halves := map[string]int{"Whole": 1, "Least": 1, "Half": 2}[kind]
	for h := range halves {
		for r := range rows {
			for p := range 2 {
				g.p("VPBROADCASTD %s, Z%d", metaAddress(r, metaStart+4*h), 2*r+p)
			}
		}
		for group := 8 / halves * h; group < 8/halves*(h+1); group++ {
			g.p("VMOVDQU64 %d(DI), Z28", 64*group)
			g.p("VMOVDQU64 %d(BX), Z29", 64*group)
			for r := range rows {
				g.p("VPBROADCASTD %s, Z30", quantAddress(r, 4*group))
				g.p("VPDPBUSD Z30, Z28, Z%d", 2*r)
				g.p("VPDPBUSD Z30, Z29, Z%d", 2*r+1)
			}
		}
		g.p("VMOVUPS %d(R10), Z28", 64*h)
		g.p("VMOVUPS %d(R10)(R11*1), Z29", 64*h)
		for r := range rows {
			g.p("VBROADCASTSS %s, Z30", metaAddress(r, metaScale))
			for p := range 2 {
				g.p("VMULPS Z30, Z%d, Z31", 28+p)
				g.p("VCVTDQ2PS Z%d, Z%d", 2*r+p, 2*r+p)
				g.p("VFMADD231PS Z31, Z%d, Z%d", 2*r+p, 12+2*r+p)
			}
		}
	}
	if kind == "Least" {
		g.p("VMOVUPS (R12), Z28")
		g.p("VMOVUPS (R12)(R11*1), Z29")
		for r := range rows {
			g.p("VBROADCASTSS %s, Z30", metaAddress(r, metaSum))
			g.p("VFMADD231PS Z28, Z30, Z%d", 12+2*r)
			g.p("VFMADD231PS Z29, Z30, Z%d", 13+2*r)
		}
		g.p("ADDQ $64, R12")
	}
	g.p("ADDQ $512, BX")
	g.quantNext(name, rows, halves)
	g.p("MOVQ %d(AX), R14", quantC)
	g.p("MOVQ %d(AX), CX", quantLDC)
	for r := range rows {
		g.p("VMOVUPS Z%d, (R14)", 12+2*r)
		g.p("VMOVUPS Z%d, 64(R14)", 13+2*r)
		g.p("ADDQ CX, R14")
	}
	g.quantNextTile(name, rows)
	g.p("VZEROUPPER")
	g.p("RET")
}

// quantStart loads what all quantTile kernels keep in registers: SI and R9 the activations of rows
// 0 and 3, R8 the distance of rows; R13, R15 and DX the same of their meta; DI the integers, R10
// the scales, R12 the least values.
func (g *generator) quantStart(rows int) {
	g.p("MOVQ %d(AX), SI", quantA)
	g.p("MOVQ %d(AX), R8", quantLDA)
	g.p("MOVQ %d(AX), R13", quantMeta)
	g.p("MOVQ %d(AX), DX", quantLDM)
	if rows > 3 {
		g.p("LEAQ (R8)(R8*2), R9")
		g.p("ADDQ SI, R9")
		g.p("LEAQ (DX)(DX*2), R15")
		g.p("ADDQ R13, R15")
	}
	g.p("MOVQ %d(AX), DI", quantQ)
	g.p("MOVQ %d(AX), R10", quantS)
	g.p("MOVQ %d(AX), R12", quantM)
}

// quantNext goes to the next block, or on.
func (g *generator) quantNext(name string, rows, halves int) {
	g.p("ADDQ $512, DI")
	g.p("ADDQ $%d, R10", 64*halves)
	g.p("ADDQ $32, SI")
	g.p("ADDQ $%d, R13", metaSize)
	if rows > 3 {
		g.p("ADDQ $32, R9")
		g.p("ADDQ $%d, R15", metaSize)
	}
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
}

func quantAddress(r, offset int) string {
	return fmt.Sprintf("%d(%s)%s", offset, []string{"SI", "R9", "R11"}[r/3],
		[3]string{"", "(R8*1)", "(R8*2)"}[r%3])
}

func metaAddress(r, offset int) string {
	return fmt.Sprintf("%d(%s)%s", offset, []string{"R13", "R15", "R12"}[r/3],
		[3]string{"", "(DX*1)", "(DX*2)"}[r%3])
}

// quantTile256 writes the kernel of rows × 16 outputs on AVX2, which has no dot product of four
// bytes. VPMADDUBSW adds two products of unsigned by signed bytes and saturates: with weights below
// 64 they fit; full bytes go in as magnitudes, their signs on the activations, and fit as well.
// Y0…Y7 hold the integer sums of a block; the chains lie in C. Y8 and Y9 hold the weights of four
// steps, Y11 and Y12 their signed form, Y10 activations; Y15 holds ones.
func (g *generator) quantTile256(kind string, rows int) {
	name := fmt.Sprintf("quant%sx%dAVX2", kind, rows)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of one panel with 8-bit activations.", rows), 8)
	g.p("MOVQ t+0(FP), AX")
	g.label("%s_tile", name)
	g.quantStart(rows)
	g.p("MOVQ %d(AX), R11", quantC)
	g.p("MOVQ %d(AX), BX", quantLDC)
	g.p("MOVQ %d(AX), R14", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	for r := range rows {
		for p := range 2 {
			g.p("VMOVUPS %d(R14), Y%d", 32*p, p)
			g.p("VMOVUPS Y%d, %d(R11)", p, 32*p)
		}
		if r+1 < rows {
			g.p("ADDQ CX, R14")
			g.p("ADDQ BX, R11")
		}
	}
	g.p("MOVQ %d(AX), CX", quantBlocks)
	g.broadcast(ymm, "wordOne", 15)
	g.label("%s_loop", name)
	halves := map[string]int{"Byte": 1, "Whole": 1, "Least": 1, "Half": 2}[kind]
	for h := range halves {
		for r := 0; r < rows && kind != "Byte"; r++ {
			for p := range 2 {
				g.p("VPBROADCASTD %s, Y%d", metaAddress(r, metaStart+4*h), 2*r+p)
			}
		}
		for group := 8 / halves * h; group < 8/halves*(h+1); group++ {
			g.quantGroup256(kind, rows, group)
		}
		g.quantScale256(rows, h)
	}
	if kind == "Least" {
		g.chains256(rows, func(r, p int) {
			g.p("VBROADCASTSS %s, Y10", metaAddress(r, metaSum))
			g.p("VMOVUPS %d(R12), Y12", 32*p)
			g.p("VMOVUPS %d(R14), Y11", 32*p)
			g.p("VFMADD231PS Y12, Y10, Y11")
			g.p("VMOVUPS Y11, %d(R14)", 32*p)
		})
		g.p("ADDQ $64, R12")
	}
	g.quantNext(name, rows, halves)
	g.quantNextTile(name, rows)
	g.p("VZEROUPPER")
	g.p("RET")
}

// quantNextTile goes to the next tile, or on. Behind the last one the pointers stay where they
// are: behind the rows there may be no memory, and the garbage collector looks at them.
func (g *generator) quantNextTile(name string, rows int) {
	g.p("DECQ %d(AX)", quantTiles)
	g.p("JZ %s_end", name)
	for _, f := range [][2]int{{quantLDA, quantA}, {quantLDM, quantMeta}, {quantLDC, quantC},
		{quantLDI, quantInit}} {
		g.p("IMUL3Q $%d, %d(AX), CX", rows, f[0])
		g.p("ADDQ CX, %d(AX)", f[1])
	}
	g.p("JMP %s_tile", name)
	g.label("%s_end", name)
}

// quantGroup256 adds four steps to the integer sums.
func (g *generator) quantGroup256(kind string, rows, group int) {
	for p := range 2 {
		g.p("VMOVDQU %d(DI), Y%d", 64*group+32*p, 8+p)
		if kind == "Byte" {
			g.p("VMOVDQU %d(DI), Y%d", chunkSigned+64*group+32*p, 11+p)
		}
	}
	for r := range rows {
		g.p("VPBROADCASTD %s, Y10", quantAddress(r, 4*group))
		for p := range 2 {
			if kind == "Byte" {
				g.p("VPSIGNB Y%d, Y10, Y13", 11+p)
				g.p("VPMADDUBSW Y13, Y%d, Y13", 8+p)
			} else {
				g.p("VPMADDUBSW Y10, Y%d, Y13", 8+p)
			}
			if kind == "Byte" && group == 0 { // there is nothing yet to add to
				g.p("VPMADDWD Y15, Y13, Y%d", 2*r+p)
				continue
			}
			g.p("VPMADDWD Y15, Y13, Y13")
			g.p("VPADDD Y13, Y%d, Y%d", 2*r+p, 2*r+p)
		}
	}
}

// quantScale256 adds the scaled sums to the chains.
func (g *generator) quantScale256(rows, half int) {
	g.chains256(rows, func(r, p int) {
		g.p("VBROADCASTSS %s, Y10", metaAddress(r, metaScale))
		g.p("VMULPS %d(R10), Y10, Y10", 64*half+32*p)
		g.p("VCVTDQ2PS Y%d, Y12", 2*r+p)
		g.p("VMOVUPS %d(R14), Y11", 32*p)
		g.p("VFMADD231PS Y10, Y12, Y11")
		g.p("VMOVUPS Y11, %d(R14)", 32*p)
	})
}

// chains256 goes through the rows of C with R14.
func (g *generator) chains256(rows int, body func(r, p int)) {
	g.p("MOVQ %d(AX), R14", quantC)
	for r := range rows {
		body(r, 0)
		body(r, 1)
		if r+1 < rows {
			g.p("ADDQ BX, R14")
		}
	}
}
