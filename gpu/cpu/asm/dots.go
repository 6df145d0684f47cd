package main

import (
	"fmt"
	"strings"
)

// Go's assembler does not know AVX512_BF16. Its instruction is written as bytes, as Intel's manual
// encodes it: EVEX.512, map 0F38, W0, prefix F3.

// dotBF16 writes VDPBF16PS on registers: for each pair of neighbouring bfloat16, to + x·w of the
// upper ones, rounded, then that + x·w of the lower ones, rounded.
func (g *generator) dotBF16(to, x, w int) {
	inverted := func(register, bit int) int { return 1 - register>>bit&1 }
	g.bytes([]int{0x62,
		inverted(to, 3)<<7 | inverted(w, 4)<<6 | inverted(w, 3)<<5 | inverted(to, 4)<<4 | 2,
		(15-x&15)<<3 | 1<<2 | 2,
		2<<5 | inverted(x, 4)<<3,
		0x52, 0xc0 | to&7<<3 | w&7,
	}, fmt.Sprintf("VDPBF16PS Z%d, Z%d, Z%d", w, x, to))
}

// dots writes the kernels for activations in bfloat16, of weights in pairs of k.
func (g *generator) dots() {
	for _, rows := range heights512 {
		g.dotTile(rows, 1)
		g.dotTile(rows, 2)
	}
	g.dotWide()
	g.roundPairs()
}

// dotTile writes the kernel of rows × 16·panels outputs. Registers are those of tile512; a step is
// a pair of k.
func (g *generator) dotTile(rows, panels int) {
	kind, doc := "tile", fmt.Sprintf("computes %d rows of one panel of pairs.", rows)
	if panels == 2 {
		kind, doc = "pair", fmt.Sprintf("computes %d rows of two panels of pairs.", rows)
	}
	name, bases := fmt.Sprintf("%sDotx%d", kind, rows), []string{"DI", "BX"}[:panels]
	g.function(name, "(t *tile)", doc, 8)
	g.p("MOVQ t+0(FP), AX")
	g.p("MOVQ %d(AX), BX", fieldInit)
	g.p("MOVQ %d(AX), DX", fieldLDI)
	for r := range rows {
		for p := range panels {
			g.p("VMOVUPS %d(BX), Z%d", 64*p, panels*r+p)
		}
		if r+1 < rows {
			g.p("ADDQ DX, BX")
		}
	}
	g.eachRow(rows, panels, func(_, at int) { g.prefetchOwn(at) })
	g.p("MOVQ %d(AX), CX", fieldK)
	g.p("MOVQ %d(AX), SI", fieldA)
	g.p("MOVQ %d(AX), R8", fieldLDA)
	g.rowBases(rows)
	g.p("MOVQ %d(AX), DI", fieldB)
	if panels == 2 {
		g.p("MOVQ %d(AX), BX", fieldPanel)
		g.p("ADDQ DI, BX")
	}
	g.loopBy(name, 2, func(steps int) {
		for u := range steps {
			for p, b := range bases {
				g.p("PREFETCHT0 %d(%s)", aheadWide+64*u, b)
				g.p("VMOVUPS %d(%s), Z%d", 64*u, b, 30+p)
			}
			for r := range rows {
				g.p("VBROADCASTSS %s, Z%d", rowAddress(r, 4*u), 28+r&1)
				for p := range panels {
					g.dotBF16(panels*r+p, 28+r&1, 30+p)
				}
			}
		}
		g.advance(4*steps, rowBases[:(rows+2)/3])
		g.advance(64*steps, bases)
	})
	g.eachRow(rows, panels, func(i, at int) { g.p("VMOVUPS Z%d, %d(DX)", i, at) })
	g.p("VZEROUPPER")
	g.p("RET")
}

// dotWide writes the kernel of one row × four panels.
func (g *generator) dotWide() {
	const name = "wideDot"
	g.function(name, "(t *tile)", "computes one row of four panels of pairs.", 8)
	g.p("MOVQ t+0(FP), AX")
	g.wideInit()
	g.p("MOVQ %d(AX), CX", fieldK)
	g.p("MOVQ %d(AX), SI", fieldA)
	g.p("MOVQ %d(AX), DI", fieldB)
	g.p("MOVQ %d(AX), R12", fieldPanel)
	g.wideBases()
	g.loopBy(name, unroll, func(steps int) {
		for u := range steps {
			g.p("VBROADCASTSS %d(SI), Z28", 4*u)
			for i, b := range widePanels {
				g.p("PREFETCHT0 %d%s", aheadWide+64*u, b)
				g.p("VMOVUPS %d%s, Z%d", 64*u, b, 29+i%3)
				g.dotBF16(i, 28, 29+i%3)
			}
		}
		g.advance(4*steps, []string{"SI"})
		g.advance(64*steps, []string{"DI", "BX"})
	})
	g.wideEnd()
	g.p("VZEROUPPER")
	g.p("RET")
}

// Offsets of the fields of type pairCall in micro_dot.go.
const pairN, pairFrom, pairTo = 0, 8, 16

// roundPairs writes the kernel for activations: 16 numbers a turn, rounded as roundPlane does. Of
// the eight pairs in quadwords, the upper half of the first number and that of the second come
// together.
func (g *generator) roundPairs() {
	const name = "roundPairsAVX512"
	g.function(name, "(c *pairCall)", "is roundPairsGo for a positive multiple of 16.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", pairN)
	g.p("MOVQ %d(AX), SI", pairFrom)
	g.p("MOVQ %d(AX), DI", pairTo)
	g.roundingConstants(zmm)
	g.label("%s_loop", name)
	g.p("VMOVUPS (SI), Z0")
	g.roundPlane(zmm)
	g.p("VPSRLQ $48, Z1, Z2")
	g.p("VPORQ Z2, Z1, Z1")
	g.p("VPMOVQD Z1, (DI)")
	g.p("ADDQ $64, SI")
	g.p("ADDQ $32, DI")
	g.p("SUBQ $16, CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// dotTables lists the tile kernels by rows.
func (g *generator) dotTables(t *strings.Builder) {
	for _, kind := range []string{"tile", "pair"} {
		fmt.Fprintf(t, "\n// %sDots are kernels for panels of pairs by rows.\n", kind)
		fmt.Fprintf(t, "var %sDots = [tileRows + 1]tileKernel{\n", kind)
		for _, rows := range heights512 {
			fmt.Fprintf(t, "\t%d: %sDotx%d,\n", rows, kind, rows)
		}
		fmt.Fprintf(t, "}\n")
	}
}
