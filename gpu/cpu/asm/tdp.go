package main

import (
	"fmt"
	"strings"
)

// Offsets of the fields of types tdpTile, tdpOffsets, tdpSplit and tdpWiden in micro_tdp.go.
const (
	tdpStretches, tdpX, tdpLDX, tdpW, tdpC         = 0, 8, 16, 24, 32
	tdpLDC, tdpInit, tdpLDI, tdpCount, tdpOffsets  = 40, 48, 56, 64, 72
	tdpBefore, tdpFlushing, tdpPlane, tdpPanel     = 80, 84, 88, 96
	splitN, splitFrom, splitTo, splitPlane, splits = 0, 8, 16, 24, 32
	planesN, planesFrom, planesTo, planesPlane     = 0, 8, 16, 24
)

const (
	tdpHeight   = 12 // rows of the tallest AVX-512 tile
	tdpHeight2  = 6  // of the tallest AVX2 tile, which takes half a panel
	tdpPairs    = 16 // of k in a stretch
	tdpUnrolled = 4  // pairs of a turn
)

// tdpForms are the types of weights, with the planes of activations and their own, the products of
// planes and the panels of a one-row kernel: see tdpForms in gpu/cpu.
var tdpForms = []struct {
	dtype            string
	xPlanes, wPlanes int
	products         [][2]int
	panels           int
}{
	{"F32", 3, 3, [][2]int{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}}, 1},
	{"F16", 2, 2, [][2]int{{0, 1}, {0, 0}, {1, 0}}, 2},
	{"BF16", 2, 1, [][2]int{{1, 0}, {0, 0}}, 2},
}

// tdp writes the kernels of the class tdp.
func (g *generator) tdp() {
	for _, v := range []vector{ymm, zmm} {
		height := tdpHeight2
		if v == zmm {
			height = tdpHeight
		}
		for rows := 1; rows <= height; rows++ {
			g.tdpTile(v, rows)
		}
		g.tdpSplit(v)
		for _, f := range tdpForms {
			g.tdpWiden(v, f.dtype, f.wPlanes)
		}
	}
	for i := range tdpForms {
		g.tdpWide(i)
	}
}

// flushed writes what follows until the returned function is called in the mode that flushes.
func (g *generator) flushed() (back func()) {
	g.p("STMXCSR %d(AX)", tdpBefore)
	g.p("LDMXCSR %d(AX)", tdpFlushing)
	return func() { g.p("LDMXCSR %d(AX)", tdpBefore) }
}

// tdpTile writes the kernel of rows × a register's lanes: for each stretch and each product of
// planes two accumulators a row, the chains of even and of odd k.
func (g *generator) tdpTile(v vector, rows int) {
	name := fmt.Sprintf("tdpTilex%d%s", rows, v.isa)
	w, x := 30, 28 // registers of weights and of activations
	if v == ymm {
		w, x = 14, 12
	}
	g.function(name, "(t *tdpTile)", fmt.Sprintf("computes %d rows of %d columns.", rows,
		v.bytes/4), 8)
	g.p("MOVQ t+0(FP), AX")
	back := g.flushed()
	g.p("MOVQ %d(AX), BX", tdpInit)
	g.p("MOVQ %d(AX), R8", tdpLDI)
	g.tdpOutputs(rows, func(r int) {
		g.p("VMOVUPS (BX), %s", v.reg(0))
		g.p("VMOVUPS %s, (DX)", v.reg(0))
		g.p("ADDQ R8, BX")
	})
	g.p("MOVQ %d(AX), R8", tdpLDX)
	g.p("XORQ BX, BX") // of the stretch, in bytes of x; addresses in memory stay those of objects
	g.label("%s_stretch", name)
	g.p("MOVQ %d(AX), R13", tdpCount)
	g.p("MOVQ %d(AX), R10", tdpOffsets)
	g.label("%s_product", name)
	g.p("MOVQ %d(AX), SI", tdpX)
	g.p("ADDQ BX, SI")
	g.p("ADDQ (R10), SI")
	g.rowBases(rows)
	g.p("MOVQ BX, DI")
	g.p("SHLQ $4, DI") // a step of w has 16 numbers
	g.p("ADDQ %d(AX), DI", tdpW)
	g.p("ADDQ 8(R10), DI")
	for i := range 2 * rows {
		g.zero(v, i)
	}
	g.p("MOVQ $%d, CX", tdpPairs/tdpUnrolled)
	g.label("%s_pairs", name)
	for u := range tdpUnrolled {
		g.p("VMOVUPS %d(DI), %s", 128*u, v.reg(w))
		g.p("VMOVUPS %d(DI), %s", 128*u+64, v.reg(w+1))
		for r := range rows {
			for odd := range 2 {
				g.p("VBROADCASTSS %s, %s", rowAddress(r, 8*u+4*odd), v.reg(x+odd))
				g.p("VFMADD231PS %s, %s, %s", v.reg(w+odd), v.reg(x+odd), v.reg(2*r+odd))
			}
		}
	}
	for _, base := range rowBases[:(rows+2)/3] {
		g.p("ADDQ $%d, %s", 8*tdpUnrolled, base)
	}
	g.p("ADDQ $%d, DI", 128*tdpUnrolled)
	g.p("DECQ CX")
	g.p("JNZ %s_pairs", name)
	g.tdpOutputs(rows, func(r int) {
		g.p("VADDPS %s, %s, %s", v.reg(2*r), v.reg(2*r+1), v.reg(2*r))
		g.p("VADDPS (DX), %s, %s", v.reg(2*r), v.reg(2*r))
		g.p("VMOVUPS %s, (DX)", v.reg(2*r))
	})
	g.p("ADDQ $16, R10")
	g.p("DECQ R13")
	g.p("JNZ %s_product", name)
	g.p("ADDQ $%d, BX", 2*tdpPairs*4)
	g.p("DECQ %d(AX)", tdpStretches)
	g.p("JNZ %s_stretch", name)
	back()
	g.p("VZEROUPPER")
	g.p("RET")
}

// tdpOutputs goes through the rows of C with DX.
func (g *generator) tdpOutputs(rows int, body func(r int)) {
	g.p("MOVQ %d(AX), DX", tdpC)
	g.p("MOVQ %d(AX), R15", tdpLDC)
	for r := range rows {
		body(r)
		if r+1 < rows {
			g.p("ADDQ R15, DX")
		}
	}
}

// zero clears a register.
func (g *generator) zero(v vector, i int) {
	g.p("%s %s, %s, %s", v.integer("VPXOR"), v.reg(i), v.reg(i), v.reg(i))
}

// tdpWide writes the kernel of one row × a few panels as they are packed. The chains are as in
// tdpTile; weights are split as they are read.
func (g *generator) tdpWide(form int) {
	f := tdpForms[form]
	name, products := fmt.Sprintf("tdpWide%s", f.dtype), len(f.products)
	step := sizes[f.dtype]
	bases := []string{"DI", "BX"}[:f.panels]
	x := 2 * products * f.panels // then the activations, then the weights
	w := x + 2*f.xPlanes
	sum := 31 - f.panels
	chain := func(product, panel, odd int) int { return 2*(product*f.panels+panel) + odd }
	g.function(name, "(t *tdpTile)", "computes one row of a few "+f.dtype+" panels.", 8)
	g.p("MOVQ t+0(FP), AX")
	back := g.flushed()
	g.p("MOVQ %d(AX), DX", tdpInit)
	for p := range f.panels {
		g.p("VMOVUPS %d(DX), Z%d", 64*p, sum+p)
	}
	g.p("MOVQ %d(AX), CX", tdpStretches)
	g.p("MOVQ %d(AX), SI", tdpX)
	g.p("MOVQ %d(AX), R8", tdpPlane)
	g.p("MOVQ %d(AX), DI", tdpW)
	g.p("MOVQ %d(AX), BX", tdpPanel)
	g.p("ADDQ DI, BX")
	g.p("VPBROADCASTD %s, Z31", constant("upperHalf"))
	g.label("%s_stretch", name)
	for i := range x {
		g.zero(zmm, i)
	}
	g.p("MOVQ $%d, R9", tdpPairs/2)
	g.label("%s_pairs", name)
	for at := 0; at < 4*step; at += 64 {
		for _, b := range bases {
			g.p("PREFETCHT0 %d(%s)", aheadWide+at, b)
		}
	}
	for u := range 2 {
		for odd := range 2 {
			for p := range f.xPlanes {
				index := [3]string{"", "(R8*1)", "(R8*2)"}[p]
				g.p("VBROADCASTSS %d(SI)%s, Z%d", 8*u+4*odd, index, x+2*p+odd)
			}
			for panel, b := range bases {
				g.load512(f.dtype, fmt.Sprintf("%d(%s)", step*(2*u+odd), b), w)
				g.splitWeight(w, f.wPlanes)
				for i, p := range f.products {
					g.p("VFMADD231PS Z%d, Z%d, Z%d", w+p[1], x+2*p[0]+odd, chain(i, panel, odd))
				}
			}
		}
	}
	g.advance(16, []string{"SI"})
	g.advance(4*step, bases)
	g.p("DECQ R9")
	g.p("JNZ %s_pairs", name)
	for panel := range f.panels {
		for i := range products {
			even := chain(i, panel, 0)
			g.p("VADDPS Z%d, Z%d, Z%d", even, even+1, even)
			g.p("VADDPS Z%d, Z%d, Z%d", even, sum+panel, sum+panel)
		}
	}
	g.p("DECQ CX")
	g.p("JNZ %s_stretch", name)
	back()
	g.p("MOVQ %d(AX), DX", tdpC)
	for p := range f.panels {
		g.p("VMOVUPS Z%d, %d(DX)", sum+p, 64*p)
	}
	g.p("VZEROUPPER")
	g.p("RET")
}

// advance adds so many bytes to addresses.
func (g *generator) advance(bytes int, registers []string) {
	for _, r := range registers {
		g.p("ADDQ $%d, %s", bytes, r)
	}
}

// splitWeight leaves the planes of the weights in register w there and in those behind it; Z31 is
// the mask of the upper half.
func (g *generator) splitWeight(w, planes int) {
	for i := range planes - 1 {
		g.p("VMOVAPS Z%d, Z%d", w+i, w+i+1)
		g.p("VPANDD Z31, Z%d, Z%d", w+i, w+i)
		g.p("VSUBPS Z%d, Z%d, Z%d", w+i, w+i+1, w+i+1)
	}
}

// tdpSplit writes the kernel for activations: 16 numbers a turn, rounded to the nearest bfloat16 as
// floatToBfloat does, plane after plane.
func (g *generator) tdpSplit(v vector) {
	name, lanes := "tdpSplit"+v.isa, v.bytes/4
	g.function(name, "(c *tdpSplit)", "is tdpSplitGo for whole vectors.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", splitN)
	g.p("MOVQ %d(AX), SI", splitFrom)
	g.p("MOVQ %d(AX), DI", splitTo)
	g.p("MOVQ %d(AX), R8", splitPlane)
	g.roundingConstants(v)
	g.label("%s_loop", name)
	g.p("VMOVUPS (SI), %s", v.reg(0))
	g.p("MOVQ %d(AX), R9", splits)
	g.p("MOVQ DI, DX")
	g.label("%s_plane", name)
	g.roundPlane(v)
	g.p("VMOVUPS %s, (DX)", v.reg(1))
	g.p("VSUBPS %s, %s, %s", v.reg(1), v.reg(0), v.reg(0))
	g.p("ADDQ R8, DX")
	g.p("DECQ R9")
	g.p("JNZ %s_plane", name)
	g.p("ADDQ $%d, SI", v.bytes)
	g.p("ADDQ $%d, DI", v.bytes)
	g.p("SUBQ $%d, CX", lanes)
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// roundingConstants loads what roundPlane needs to registers 12 to 15.
func (g *generator) roundingConstants(v vector) {
	g.broadcast(v, "upperHalf", 15)
	g.broadcast(v, "almostHalf", 14)
	g.broadcast(v, "intOne", 13)
	g.broadcast(v, "nan", 12)
}

// roundPlane rounds register 0 to bfloat16 in register 1.
func (g *generator) roundPlane(v vector) {
	g.p("VPSRLD $16, %s, %s", v.reg(0), v.reg(1))
	g.p("%s %s, %s, %s", v.integer("VPAND"), v.reg(13), v.reg(1), v.reg(1))
	g.p("VPADDD %s, %s, %s", v.reg(14), v.reg(1), v.reg(1))
	g.p("VPADDD %s, %s, %s", v.reg(0), v.reg(1), v.reg(1))
	g.p("%s %s, %s, %s", v.integer("VPAND"), v.reg(15), v.reg(1), v.reg(1))
	if v == zmm { // a NaN stays one
		g.p("VCMPPS $3, Z0, Z0, K1")
		g.p("VMOVAPS Z12, K1, Z1")
		return
	}
	g.p("VCMPPS $3, Y0, Y0, Y2")
	g.p("VBLENDVPS Y2, Y12, Y1, Y1")
}

// tdpWiden writes the kernel for weights of a type: their planes as float32.
func (g *generator) tdpWiden(v vector, dtype string, planes int) {
	name, lanes := fmt.Sprintf("tdpWiden%s%s", dtype, v.isa), v.bytes/4
	g.function(name, "(c *tdpWiden)", "is tdpWidenGo for "+dtype+".", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", planesN)
	g.p("MOVQ %d(AX), SI", planesFrom)
	g.p("MOVQ %d(AX), DI", planesTo)
	g.p("MOVQ %d(AX), R8", planesPlane)
	g.broadcast(v, "upperHalf", 15)
	g.label("%s_loop", name)
	for at := 0; at < 16; at += lanes {
		if v == zmm {
			g.load512(dtype, "(SI)", 0)
		} else {
			g.load(dtype, "(SI)", at, "Y0")
		}
		for p := range planes {
			to := fmt.Sprintf("%d(DI)%s", 4*at, [3]string{"", "(R8*1)", "(R8*2)"}[p])
			if p == planes-1 {
				g.p("VMOVUPS %s, %s", v.reg(0), to)
				continue
			}
			g.p("%s %s, %s, %s", v.integer("VPAND"), v.reg(15), v.reg(0), v.reg(1))
			g.p("VMOVUPS %s, %s", v.reg(1), to)
			g.p("VSUBPS %s, %s, %s", v.reg(1), v.reg(0), v.reg(0))
		}
	}
	g.p("ADDQ $%d, SI", sizes[dtype])
	g.p("ADDQ $64, DI")
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// tdpTables lists the tile kernels by rows.
func (g *generator) tdpTables(t *strings.Builder) {
	for _, isa := range []string{"AVX2", "AVX512"} {
		height := map[string]int{"AVX2": tdpHeight2, "AVX512": tdpHeight}[isa]
		fmt.Fprintf(t, "\n// tdpTiles%s are kernels of the class tdp by rows.\n", isa)
		fmt.Fprintf(t, "var tdpTiles%s = [tdpRows + 1]func(*tdpTile){\n", isa)
		for rows := 1; rows <= height; rows++ {
			fmt.Fprintf(t, "\t%d: tdpTilex%d%s,\n", rows, rows, isa)
		}
		fmt.Fprintf(t, "}\n")
		fmt.Fprintf(t, "\n// tdpWideners%s make planes of steps of panels, by type.\n", isa)
		fmt.Fprintf(t, "var tdpWideners%s = [plainTypes]func(*tdpWiden){\n", isa)
		for _, f := range tdpForms {
			fmt.Fprintf(t, "\tgpu.%s: tdpWiden%s%s,\n", f.dtype, f.dtype, isa)
		}
		fmt.Fprintf(t, "}\n")
	}
}
