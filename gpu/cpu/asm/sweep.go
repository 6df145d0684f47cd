package main

import "fmt"

// Offsets of the fields of type sweep in sweep.go.
const (
	sweepA, sweepLDA, sweepLDB             = 0, 8, 16
	sweepList, sweepCount, sweepAlong      = 24, 32, 40
	sweepShift, sweepAcross                = 48, 56
	sweepC, sweepLDC                       = 64, 72
	sweepInit, sweepLDI, sweepAhead        = 80, 88, 96
	sweepPanels                            = 104
	sweepStairs, sweepFirst, sweepSteps    = 112, 120, 128
	sweepOwnPanels, sweepOwnList           = 136, 144
	sweepOwnShift, sweepOwnC, sweepOwnInit = 152, 160, 168
)

// tall256 is the rows of a sweep in AVX2.
const tall256 = 6

// sweep256 writes the kernel that takes 6 rows through panel after panel. R15, R13, R14 and R11 are
// where the panel's list, shift, outputs and beginnings lie; BX goes through the list.
func (g *generator) sweep256(dtype string) {
	name := fmt.Sprintf("sweep%sAVX2", dtype)
	g.function(name, "(s *sweep)", "takes 6 rows through "+dtype+" panels.", 8)
	g.p("MOVQ s+0(FP), AX")
	g.p("MOVQ %d(AX), R8", sweepLDA)
	g.p("MOVQ %d(AX), R15", sweepList)
	g.p("MOVQ %d(AX), R13", sweepShift)
	g.p("MOVQ %d(AX), R14", sweepC)
	g.p("MOVQ %d(AX), R11", sweepInit)
	g.p("MOVQ %d(AX), CX", sweepPanels)
	g.p("MOVQ CX, %d(AX)", sweepOwnPanels)
	g.label("%s_panel", name)
	g.p("MOVQ %d(AX), DX", sweepLDI)
	g.p("MOVQ R11, BX")
	g.loadSums256(tall256, "BX", "DX")
	g.p("MOVQ %d(AX), SI", sweepA)
	g.p("LEAQ (R8)(R8*2), R9")
	g.p("ADDQ SI, R9")
	g.p("MOVQ %d(AX), R10", sweepLDB)
	g.p("LEAQ (R10)(R10*2), R12")
	g.p("MOVQ R15, BX")
	g.p("MOVQ %d(AX), DX", sweepCount)
	g.label("%s_stretch", name)
	g.p("MOVQ (BX), DI")
	g.p("ADDQ R13, DI")
	g.p("MOVQ 8(BX), CX")
	g.loop(name, func(steps int) {
		for u := range steps {
			g.tileRows(dtype, [2]int{0, tall256}, u)
		}
		g.p("ADDQ $%d, SI", 4*steps)
		g.p("ADDQ $%d, R9", 4*steps)
		g.p("LEAQ (DI)(R10*%d), DI", steps)
	})
	g.p("ADDQ $16, BX")
	g.p("DECQ DX")
	g.p("JNZ %s_stretch", name)
	g.climb(name, tall256, func(first int) {
		g.p("ADDQ R13, DI")
		g.tileRows(dtype, [2]int{first, tall256}, 0)
		g.p("ADDQ $4, SI")
		g.p("ADDQ $4, R9")
	})
	g.p("MOVQ %d(AX), CX", sweepLDC)
	g.p("MOVQ R14, DX")
	g.storeSums256(tall256, "DX", "CX")
	g.p("ADDQ %d(AX), R15", sweepAlong)
	g.p("ADDQ %d(AX), R13", sweepAcross)
	g.p("ADDQ %d(AX), R11", sweepAhead)
	g.p("ADDQ $64, R14")
	g.p("DECQ %d(AX)", sweepOwnPanels)
	g.p("JNZ %s_panel", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// climb writes the way up the stairs of a tile, whose first rows stay behind: body writes a step of
// rows from a first one on, whose weights lie at DI and the panel's shift. CX, DX and R10 are free
// by then.
func (g *generator) climb(name string, rows int, body func(first int)) {
	g.p("MOVQ %d(AX), R10", sweepSteps)
	g.p("TESTQ R10, R10")
	g.p("JZ %s_top", name)
	g.p("MOVQ %d(AX), DX", sweepStairs)
	g.p("MOVQ %d(AX), CX", sweepFirst)
	for first := 1; first < rows; first++ {
		g.p("CMPQ CX, $%d", first)
		g.p("JGT %s_stair%d", name, first)
		g.p("DECQ R10")
		g.p("JLT %s_top", name)
		g.p("MOVQ (DX), DI")
		g.p("ADDQ $16, DX")
		body(first)
		g.label("%s_stair%d", name, first)
	}
	g.label("%s_top", name)
}

// sweep512 writes the kernel that takes 14 rows through pairs of panels, and a last one by itself.
// What differs from panel to panel lies in the call's own fields: registers are used up.
func (g *generator) sweep512(dtype string) {
	name := fmt.Sprintf("sweep%sAVX512", dtype)
	g.function(name, "(s *sweep)", "takes 14 rows through "+dtype+" panels.", 8)
	g.p("MOVQ s+0(FP), AX")
	g.p("MOVQ %d(AX), R8", sweepLDA)
	for _, f := range [][2]int{{sweepPanels, sweepOwnPanels}, {sweepList, sweepOwnList},
		{sweepShift, sweepOwnShift}, {sweepC, sweepOwnC}, {sweepInit, sweepOwnInit}} {
		g.p("MOVQ %d(AX), CX", f[0])
		g.p("MOVQ CX, %d(AX)", f[1])
	}
	g.label("%s_pair", name)
	g.p("SUBQ $2, %d(AX)", sweepOwnPanels)
	g.p("JLT %s_last", name)
	g.panels512(name+"_two", dtype, 2)
	g.p("JMP %s_pair", name)
	g.label("%s_last", name)
	g.p("CMPQ %d(AX), $-1", sweepOwnPanels)
	g.p("JNE %s_out", name)
	g.panels512(name+"_one", dtype, 1)
	g.label("%s_out", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// panels512 writes the way through one panel or two: R15 goes through the list of the first, R14 is
// how far behind it that of the second is.
func (g *generator) panels512(name, dtype string, panels int) {
	g.p("MOVQ %d(AX), BX", sweepOwnInit)
	g.p("MOVQ %d(AX), DX", sweepLDI)
	for r := range tallest512 {
		for p := range panels {
			g.p("VMOVUPS %d(BX), Z%d", 64*p, panels*r+p)
		}
		if r+1 < tallest512 {
			g.p("ADDQ DX, BX")
		}
	}
	g.p("MOVQ %d(AX), SI", sweepA)
	g.rowBases(tallest512)
	g.p("MOVQ %d(AX), R10", sweepLDB)
	g.p("MOVQ %d(AX), R15", sweepOwnList)
	g.p("MOVQ %d(AX), R14", sweepAlong)
	g.p("MOVQ %d(AX), DX", sweepCount)
	g.label("%s_stretch", name)
	g.p("MOVQ (R15), DI")
	g.p("ADDQ %d(AX), DI", sweepOwnShift)
	if panels == 2 {
		g.p("MOVQ (R15)(R14*1), BX")
		g.p("ADDQ %d(AX), BX", sweepOwnShift)
		g.p("ADDQ %d(AX), BX", sweepAcross)
	}
	g.p("MOVQ 8(R15), CX")
	g.loopBy(name, 2, func(steps int) {
		for u := range steps {
			g.step512(dtype, tallest512, panels, u)
		}
		for _, base := range rowBases {
			g.p("ADDQ $%d, %s", 4*steps, base)
		}
		for _, b := range []string{"DI", "BX"}[:panels] {
			g.p("LEAQ (%s)(R10*%d), %s", b, steps, b)
		}
	})
	g.p("ADDQ $16, R15")
	g.p("DECQ DX")
	g.p("JNZ %s_stretch", name)
	g.p("MOVQ %d(AX), BX", sweepAcross)
	g.climb(name, tallest512, func(first int) {
		g.p("ADDQ %d(AX), DI", sweepOwnShift)
		g.rows512(dtype, []string{"(DI)", "(DI)(BX*1)"}[:panels], [2]int{first, tallest512}, 0)
		for _, base := range rowBases {
			g.p("ADDQ $4, %s", base)
		}
	})
	g.p("MOVQ %d(AX), DX", sweepOwnC)
	g.p("MOVQ %d(AX), CX", sweepLDC)
	for r := range tallest512 {
		for p := range panels {
			g.p("VMOVUPS Z%d, %d(DX)", panels*r+p, 64*p)
		}
		if r+1 < tallest512 {
			g.p("ADDQ CX, DX")
		}
	}
	g.nextPanels(panels)
}

// nextPanels writes the step of what differs from panel to panel.
func (g *generator) nextPanels(panels int) {
	for _, f := range [][2]int{{sweepAlong, sweepOwnList}, {sweepAcross, sweepOwnShift},
		{sweepAhead, sweepOwnInit}} {
		g.p("MOVQ %d(AX), CX", f[0])
		if panels == 2 {
			g.p("ADDQ CX, CX")
		}
		g.p("ADDQ CX, %d(AX)", f[1])
	}
	g.p("ADDQ $%d, %d(AX)", 64*panels, sweepOwnC)
}
