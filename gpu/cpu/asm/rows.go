package main

import (
	"fmt"
	"math"
)

func f32(x float32) uint32 { return math.Float32bits(x) }

// exp writes eʸ of register 0 to register 4, step by step as exp32 does, and uses 1 to 5.
func (g *generator) exp(v vector) {
	g.broadcast(v, "expMagic", 1)
	g.op(v, "VFMADD231PS", "log2e", 0, 1)
	g.op(v, "VSUBPS", "expMagic", 1, 2)
	g.p("VMOVAPS %s, %s", v.reg(0), v.reg(3))
	g.op(v, "VFMADD231PS", "negLn2High", 2, 3)
	g.op(v, "VFMADD231PS", "negLn2Low", 2, 3)
	g.broadcast(v, "expP0", 4)
	for _, c := range []string{"expP1", "expP2", "expP3", "expP4", "expP5"} {
		g.op(v, "VFMADD213PS", c, 3, 4)
	}
	g.p("VMULPS %s, %s, %s", v.reg(3), v.reg(3), v.reg(5))
	g.p("VFMADD213PS %s, %s, %s", v.reg(3), v.reg(5), v.reg(4))
	g.op(v, "VADDPS", "one", 4, 4)
	g.op(v, "VPADDD", "expBias", 1, 1)
	g.p("VPSLLD $23, %s, %s", v.reg(1), v.reg(1))
	g.p("VMULPS %s, %s, %s", v.reg(1), v.reg(4), v.reg(4))
	if v == zmm {
		g.p("VCMPPS.BCST $21, %s, Z0, K1", constant("expLow")) // not below the range
		g.p("VMOVAPS.Z Z4, K1, Z4")
		g.p("VCMPPS.BCST $30, %s, Z0, K2", constant("expHigh")) // above it: infinity
		g.p("VBROADCASTSS %s, K2, Z4", constant("infinity"))
		return
	}
	g.p("VCMPPS $17, %s, Y0, Y5", constant("expLow")) // below the range: 0
	g.p("VANDNPS Y4, Y5, Y4")
	g.p("VCMPPS $30, %s, Y0, Y5", constant("expHigh")) // above it: infinity
	g.p("VMOVUPS %s, Y3", constant("infinity"))
	g.p("VBLENDVPS Y5, Y3, Y4, Y4")
}

// op writes an operation on a constant and two registers.
func (g *generator) op(v vector, op, name string, source, to int) {
	if v == zmm {
		op += ".BCST"
	}
	g.p("%s %s, %s, %s", op, constant(name), v.reg(source), v.reg(to))
}

// eights writes a loop over CX elements, a positive multiple of eight, with DX as their byte
// offset.
func (g *generator) eights(name string, body func()) {
	g.p("XORQ DX, DX")
	g.label("%s_loop", name)
	body()
	g.p("ADDQ $32, DX")
	g.p("SUBQ $8, CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

func (g *generator) sumSquares() {
	const name = "sumSquaresAVX2"
	g.function(name, "(lanes *[normLanes]float64, x *float32, n int)",
		"is sumSquares for n, a positive multiple of 16.", 24)
	g.p("MOVQ lanes+0(FP), DI")
	g.p("MOVQ x+8(FP), SI")
	g.p("MOVQ n+16(FP), CX")
	for i := range 4 {
		g.p("VMOVUPD %d(DI), Y%d", 32*i, 4+i)
	}
	g.label("%s_loop", name)
	for i := range 4 {
		g.p("VCVTPS2PD %d(SI), Y%d", 16*i, i)
		g.p("VFMADD231PD Y%d, Y%d, Y%d", i, i, 4+i)
	}
	g.p("ADDQ $64, SI")
	g.p("SUBQ $16, CX")
	g.p("JNZ %s_loop", name)
	for i := range 4 {
		g.p("VMOVUPD Y%d, %d(DI)", 4+i, 32*i)
	}
	g.p("VZEROUPPER")
	g.p("RET")
}

func (g *generator) scaleWeighted(name string, accumulate bool) {
	g.function(name, "(dst, x, weight *float32, n int, inverse, offset float32)",
		"is scaleWeighted for n, a positive multiple of 8.", 40)
	g.p("MOVQ dst+0(FP), DI")
	g.p("MOVQ x+8(FP), SI")
	g.p("MOVQ weight+16(FP), BX")
	g.p("MOVQ n+24(FP), CX")
	g.p("VBROADCASTSS inverse+32(FP), Y6")
	g.p("VBROADCASTSS offset+36(FP), Y7")
	g.eights(name, func() {
		g.p("VMULPS (SI)(DX*1), Y6, Y0")
		g.p("VADDPS (BX)(DX*1), Y7, Y1")
		g.p("VMULPS Y1, Y0, Y0")
		if accumulate {
			g.p("VADDPS (DI)(DX*1), Y0, Y0")
		}
		g.p("VMOVUPS Y0, (DI)(DX*1)")
	})
}

func (g *generator) scaleRow() {
	const name = "scaleRowAVX2"
	g.function(name, "(x *float32, n int, f float32)",
		"is scaleRow for n, a positive multiple of 8.", 20)
	g.p("MOVQ x+0(FP), SI")
	g.p("MOVQ n+8(FP), CX")
	g.p("VBROADCASTSS f+16(FP), Y6")
	g.eights(name, func() {
		g.p("VMULPS (SI)(DX*1), Y6, Y0")
		g.p("VMOVUPS Y0, (SI)(DX*1)")
	})
}

// softmaxStep: VMAXPS gives its second source, the first operand here, unless the other is
// greater. Lanes are folded to eight before anything is summed, as function softmaxBlock says.
func (g *generator) softmaxStep(v vector) {
	name := "softmaxStep" + v.isa
	g.function(name,
		"(scores *[attentionBlock]float32, scale float32, line *softLine) (correction float32)",
		"is softmaxStep.", 28)
	g.p("MOVQ scores+0(FP), SI")
	g.p("MOVQ line+16(FP), BX")
	g.p("VBROADCASTSS scale+8(FP), %s", v.reg(6))
	g.p("VBROADCASTSS (BX), %s", v.reg(7))
	for at := 0; at < 256; at += v.bytes {
		g.p("VMULPS %d(SI), %s, %s", at, v.reg(6), v.reg(0))
		g.p("VMOVUPS %s, %d(SI)", v.reg(0), at)
		g.p("VMAXPS %s, %s, %s", v.reg(7), v.reg(0), v.reg(7))
	}
	if v == zmm {
		g.p("VEXTRACTF32X8 $1, Z7, Y1")
		g.p("VMAXPS Y7, Y1, Y7")
	}
	g.reduce("VMAXPS", 7)
	g.p("VBROADCASTSS X7, %s", v.reg(7))
	g.p("VXORPS Y8, Y8, Y8")
	g.p("MOVQ $%d, CX", 256/v.bytes)
	g.label("%s_loop", name)
	g.p("VMOVUPS (SI), %s", v.reg(0))
	g.p("VSUBPS %s, %s, %s", v.reg(7), v.reg(0), v.reg(0))
	g.exp(v)
	g.p("VMOVUPS %s, (SI)", v.reg(4))
	g.p("VADDPS Y4, Y8, Y8")
	if v == zmm {
		g.p("VEXTRACTF32X8 $1, Z4, Y5")
		g.p("VADDPS Y5, Y8, Y8")
	}
	g.p("ADDQ $%d, SI", v.bytes)
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.reduce("VADDPS", 8)
	g.p("VBROADCASTSS (BX), %s", v.reg(0)) // what earlier blocks' weights are worth now
	g.p("VSUBPS %s, %s, %s", v.reg(7), v.reg(0), v.reg(0))
	g.exp(v)
	g.p("VMOVSS 4(BX), X5")
	g.p("VFMADD213SS X8, X4, X5")
	g.p("VMOVSS X7, (BX)")
	g.p("VMOVSS X5, 4(BX)")
	g.p("VMOVSS X4, correction+24(FP)")
	g.p("VZEROUPPER")
	g.p("RET")
}

// reduce writes the tree of function reduce over register r; it uses X1.
func (g *generator) reduce(op string, r int) {
	g.p("VEXTRACTF128 $1, Y%d, X1", r)
	g.p("%s X%d, X1, X%d", op, r, r)
	g.p("VPERMILPD $1, X%d, X1", r)
	g.p("%s X%d, X1, X%d", op, r, r)
	g.p("VMOVSHDUP X%d, X1", r)
	g.p("%s X%d, X1, X%d", op, r, r)
}

func (g *generator) gate(v vector, gelu bool) {
	name := "gateSiLU" + v.isa
	if gelu {
		name = "gateGELU" + v.isa
	}
	g.function(name, "(dst, gate, up *float32, n int)", fmt.Sprintf(
		"is the Go function of the same name for n, a positive multiple of %d.", v.bytes/4), 32)
	g.p("MOVQ dst+0(FP), DI")
	g.p("MOVQ gate+8(FP), SI")
	g.p("MOVQ up+16(FP), BX")
	g.p("MOVQ n+24(FP), CX")
	g.broadcast(v, "one", 10)
	g.broadcast(v, "sign", 11)
	g.p("XORQ DX, DX")
	g.label("%s_loop", name)
	g.p("VMOVUPS (SI)(DX*1), %s", v.reg(9))
	if gelu {
		g.p("VMULPS %s, %s, %s", v.reg(9), v.reg(9), v.reg(0))
		g.op(v, "VFMADD132PS", "geluCubic", 10, 0)
		g.p("VMULPS %s, %s, %s", v.reg(0), v.reg(9), v.reg(0))
		g.op(v, "VMULPS", "geluSlope", 0, 0)
	} else {
		g.p("VMOVAPS %s, %s", v.reg(9), v.reg(0))
	}
	g.p("%s %s, %s, %s", v.integer("VPXOR"), v.reg(11), v.reg(0), v.reg(0))
	g.exp(v)
	g.p("VADDPS %s, %s, %s", v.reg(10), v.reg(4), v.reg(4))
	g.p("VDIVPS %s, %s, %s", v.reg(4), v.reg(9), v.reg(4))
	g.p("VMULPS (BX)(DX*1), %s, %s", v.reg(4), v.reg(4))
	g.p("VMOVUPS %s, (DI)(DX*1)", v.reg(4))
	g.p("ADDQ $%d, DX", v.bytes)
	g.p("SUBQ $%d, CX", v.bytes/4)
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

func (g *generator) rotate() {
	const name = "rotateAVX2"
	g.function(name, "(low, high, cos, sin *float32, n int)",
		"is rotate for n, a positive multiple of 8.", 40)
	g.p("MOVQ low+0(FP), SI")
	g.p("MOVQ high+8(FP), DI")
	g.p("MOVQ cos+16(FP), BX")
	g.p("MOVQ sin+24(FP), R8")
	g.p("MOVQ n+32(FP), CX")
	g.eights(name, func() {
		g.p("VMOVUPS (SI)(DX*1), Y0")
		g.p("VMOVUPS (DI)(DX*1), Y1")
		g.p("VMOVUPS (BX)(DX*1), Y2")
		g.p("VMOVUPS (R8)(DX*1), Y3")
		g.p("VMULPS Y2, Y0, Y4")
		g.p("VMULPS Y3, Y1, Y5")
		g.p("VSUBPS Y5, Y4, Y4")
		g.p("VMULPS Y2, Y1, Y5")
		g.p("VMULPS Y3, Y0, Y6")
		g.p("VADDPS Y6, Y5, Y5")
		g.p("VMOVUPS Y4, (SI)(DX*1)")
		g.p("VMOVUPS Y5, (DI)(DX*1)")
	})
}

func (g *generator) narrowHalf() {
	const name = "narrowHalfAVX2"
	g.function(name, "(dst *uint16, src *float32, n int)",
		"is narrowHalf for n, a positive multiple of 8.", 24)
	g.p("MOVQ dst+0(FP), DI")
	g.p("MOVQ src+8(FP), SI")
	g.p("MOVQ n+16(FP), CX")
	g.label("%s_loop", name)
	g.p("VMOVUPS (SI), Y0")
	g.p("VCVTPS2PH $0, Y0, (DI)") // to the nearest, ties to even
	g.p("ADDQ $32, SI")
	g.p("ADDQ $16, DI")
	g.p("SUBQ $8, CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}
