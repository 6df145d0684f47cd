package main

// Offsets of the fields of type widenCall in kv_quant.go.
const widenBlocks, widenQ, widenScales, widenTo = 0, 8, 16, 24

// widenOpen loads a widenCall's fields to CX, SI, BX and DI.
func (g *generator) widenOpen(name, doc string) {
	g.function(name, "(c *widenCall)", doc, 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", widenBlocks)
	g.p("MOVQ %d(AX), SI", widenQ)
	g.p("MOVQ %d(AX), BX", widenScales)
	g.p("MOVQ %d(AX), DI", widenTo)
	g.label("%s_loop", name)
}

// widenClose goes on to the next block: so many bytes of integers and scales further.
func (g *generator) widenClose(name string, integers, scales int) {
	g.p("ADDQ $%d, BX", scales)
	g.p("ADDQ $%d, SI", integers)
	g.p("ADDQ $%d, DI", 4*integers)
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// widenVector widens the integers at a byte with the scales in a register, by way of another.
func (g *generator) widenVector(v vector, at, scales, by int) {
	g.p("VPMOVSXBD %d(SI), %s", at, v.reg(by))
	g.p("VCVTDQ2PS %s, %s", v.reg(by), v.reg(by))
	g.p("VMULPS %s, %s, %s", v.reg(scales), v.reg(by), v.reg(by))
	g.p("VMOVUPS %s, %d(DI)", v.reg(by), 4*at)
}

// widenPanel writes the kernel for keys: 32 steps of 16 lanes with a scale each.
func (g *generator) widenPanel(v vector) {
	name, lanes := "widenPanel"+v.isa, v.bytes/4
	g.widenOpen(name, "is widenPanel.")
	for i := range 16 / lanes {
		g.p("VCVTPH2PS %d(BX), %s", 2*lanes*i, v.reg(i))
	}
	for at := 0; at < 512; at += lanes {
		g.widenVector(v, at, at/lanes%(16/lanes), 4+at/lanes%4)
	}
	g.widenClose(name, 512, 32)
}

// widenRow writes the kernel for values: 32 numbers with one scale.
func (g *generator) widenRow(v vector) {
	name, lanes := "widenRow"+v.isa, v.bytes/4
	g.widenOpen(name, "is widenRow.")
	g.p("VPBROADCASTW (BX), X0")
	g.p("VCVTPH2PS X0, Y0")
	if v == zmm {
		g.p("VBROADCASTSS X0, Z0")
	}
	for at := 0; at < 32; at += lanes {
		g.widenVector(v, at, 0, 4+at/lanes%4)
	}
	g.widenClose(name, 32, 2)
}
