package main

import "fmt"

// heights512 are the rows that AVX-512 tiles are written for; the device puts others together.
var heights512 = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}

// tallest512 is the last of them.
const tallest512 = 14

// rowBases hold the addresses of rows 0, 3, 6 and so on of the activations.
var rowBases = []string{"SI", "R9", "R11", "R12", "R13"}

// tiles512 writes all of them.
func (g *generator) tiles512() {
	for _, t := range []string{"F32", "F16", "BF16"} {
		for _, rows := range heights512 {
			g.tile512(t, rows, 1)
			g.tile512(t, rows, 2)
		}
		g.sweep512(t)
		g.wide512(t)
	}
}

// tile512 writes the kernel of rows × 16·panels outputs. Z0… hold an accumulator for each row and
// panel; each output is one FMA chain over k. Z30 and Z31 hold the weights of a step, Z28 and Z29
// an activation in all lanes.
func (g *generator) tile512(dtype string, rows, panels int) {
	kind, doc := "tile", fmt.Sprintf("computes %d rows of one %s panel.", rows, dtype)
	if panels == 2 {
		kind, doc = "pair", fmt.Sprintf("computes %d rows of two %s panels.", rows, dtype)
	}
	name := fmt.Sprintf("%s%sx%dAVX512", kind, dtype, rows)
	g.function(name, "(t *tile)", doc, 8)
	g.p("MOVQ t+0(FP), AX")
	back := g.mayFlush(name, dtype)
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
	g.p("MOVQ %d(AX), R10", fieldLDB)
	if panels == 2 {
		g.p("MOVQ %d(AX), BX", fieldPanel)
		g.p("ADDQ DI, BX")
	}
	g.label("%s_stretch", name)
	g.loopBy(name, 2, func(steps int) {
		if steps > 1 {
			for at := 0; at < steps*sizes[dtype]; at += 64 {
				for _, b := range []string{"DI", "BX"}[:panels] {
					g.p("PREFETCHT0 %d(%s)", aheadWide+at, b)
				}
			}
		}
		for u := range steps {
			g.step512(dtype, rows, panels, u)
		}
		for _, base := range rowBases[:(rows+2)/3] {
			g.p("ADDQ $%d, %s", 4*steps, base)
		}
		for _, b := range []string{"DI", "BX"}[:panels] {
			g.p("LEAQ (%s)(R10*%d), %s", b, steps, b)
		}
	})
	g.nextStretch(name, func() {
		if panels == 2 {
			g.p("MOVQ %d(AX), BX", fieldPanel)
			g.p("ADDQ DI, BX")
		}
	})
	g.eachRow(rows, panels, func(i, at int) { g.p("VMOVUPS Z%d, %d(DX)", i, at) })
	back()
	g.p("VZEROUPPER")
	g.p("RET")
}

// eachRow goes through the outputs with DX: accumulator i belongs at a byte of its row.
func (g *generator) eachRow(rows, panels int, body func(i, at int)) {
	g.p("MOVQ %d(AX), DX", fieldC)
	g.p("MOVQ %d(AX), R11", fieldLDC)
	for r := range rows {
		for p := range panels {
			body(panels*r+p, 64*p)
		}
		if r+1 < rows {
			g.p("ADDQ R11, DX")
		}
	}
}

// prefetchOwn writes PREFETCHW at(DX), which the assembler does not know: the line comes for
// writing, so that another core's copy is gone by the time of the store.
func (g *generator) prefetchOwn(at int) {
	g.p("BYTE $0x0f; BYTE $0x0d; BYTE $0x4a; BYTE $%d", at)
}

// rowBases fills those registers that rows need, from SI and the distance R8.
func (g *generator) rowBases(rows int) {
	if rows > 3 {
		g.p("LEAQ (R8)(R8*2), DX")
	}
	for i := 1; i < (rows+2)/3; i++ {
		g.p("LEAQ (%s)(DX*1), %s", rowBases[i-1], rowBases[i])
	}
}

// rowAddress is that of a byte of row r, rows being R8 apart.
func rowAddress(r, offset int) string {
	return fmt.Sprintf("%d(%s)%s", offset, rowBases[r/3], [3]string{"", "(R8*1)", "(R8*2)"}[r%3])
}

// step512 writes step u of an unrolled turn.
func (g *generator) step512(dtype string, rows, panels, u int) {
	from := []string{"(DI)", "(BX)"}
	if u > 0 {
		from = []string{"(DI)(R10*1)", "(BX)(R10*1)"}
	}
	g.rows512(dtype, from[:panels], [2]int{0, rows}, 4*u)
}

// rows512 writes a step of some rows by the panels at from; at is the byte of the step in a row.
func (g *generator) rows512(dtype string, from []string, rows [2]int, at int) {
	for p, b := range from {
		g.load512(dtype, b, 30+p)
	}
	for r := rows[0]; r < rows[1]; r++ {
		g.p("VBROADCASTSS %s, Z%d", rowAddress(r, at), 28+r&1)
		for p := range from {
			g.p("VFMADD231PS Z%d, Z%d, Z%d", 30+p, 28+r&1, len(from)*r+p)
		}
	}
}

// load512 writes the widening of sixteen weights.
func (g *generator) load512(dtype, address string, register int) {
	switch dtype {
	case "F32":
		g.p("VMOVUPS %s, Z%d", address, register)
	case "F16":
		g.p("VCVTPH2PS %s, Z%d", address, register)
	case "BF16":
		g.p("VPMOVZXWD %s, Z%d", address, register)
		g.p("VPSLLD $16, Z%d, Z%d", register, register)
	}
}

// aheadWide is how many bytes of each panel the kernels below ask for in advance: the processor's
// own prefetching stops at the end of every page of 4 KB.
const aheadWide = 2048

// sizes are the bytes of a step of a panel.
var sizes = map[string]int{"F32": 64, "F16": 32, "BF16": 32}

// widePanels are where the kernels of four panels find them, R12 bytes apart.
var widePanels = []string{"(DI)", "(DI)(R12*1)", "(DI)(R12*2)", "(BX)"}

// wideInit loads what the outputs of four panels begin with.
func (g *generator) wideInit() {
	g.p("MOVQ %d(AX), BX", fieldInit)
	for i := range 4 {
		g.p("VMOVUPS %d(BX), Z%d", 64*i, i)
	}
}

// wideBases finds the last of widePanels.
func (g *generator) wideBases() {
	g.p("LEAQ (R12)(R12*2), BX")
	g.p("ADDQ DI, BX")
}

// wideEnd stores the outputs of four panels.
func (g *generator) wideEnd() {
	g.p("MOVQ %d(AX), DX", fieldC)
	for i := range 4 {
		g.p("VMOVUPS Z%d, %d(DX)", i, 64*i)
	}
}

// wide512 writes the kernel of one row × four panels.
func (g *generator) wide512(dtype string) {
	name := fmt.Sprintf("wide%sAVX512", dtype)
	g.function(name, "(t *tile)", "computes one row of four "+dtype+" panels.", 8)
	g.p("MOVQ t+0(FP), AX")
	back := g.mayFlush(name, dtype)
	g.wideInit()
	g.p("MOVQ %d(AX), CX", fieldK)
	g.p("MOVQ %d(AX), SI", fieldA)
	g.p("MOVQ %d(AX), DI", fieldB)
	g.p("MOVQ %d(AX), R10", fieldLDB)
	g.p("MOVQ %d(AX), R12", fieldPanel)
	g.wideBases()
	g.label("%s_stretch", name)
	g.loopBy(name, unroll, func(steps int) {
		for u := range steps {
			if u*sizes[dtype]%64 == 0 && steps > 1 {
				for _, b := range widePanels {
					g.p("PREFETCHT0 %d%s", aheadWide, b)
				}
			}
			g.p("VBROADCASTSS %d(SI), Z28", 4*u)
			for i, b := range widePanels {
				g.load512(dtype, b, 30)
				g.p("VFMADD231PS Z30, Z28, Z%d", i)
			}
			g.p("ADDQ R10, DI")
			g.p("ADDQ R10, BX")
		}
		g.p("ADDQ $%d, SI", 4*steps)
	})
	g.nextStretch(name, g.wideBases)
	g.wideEnd()
	back()
	g.p("VZEROUPPER")
	g.p("RET")
}
