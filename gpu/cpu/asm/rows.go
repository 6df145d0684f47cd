package main

import (
	"fmt"
	"math"
)

func f32(x float32) uint32 { return math.Float32bits(x) }

// exp writes eʸ of Y0 to Y4, step by step as exp32 does, and uses Y1 to Y5.
func (g *generator) exp() {
	g.broadcast(ymm, "expMagic", 1)
	g.p("VFMADD231PS %s, Y0, Y1", constant("log2e"))
	g.p("VSUBPS %s, Y1, Y2", constant("expMagic"))
	g.p("VMOVAPS Y0, Y3")
	g.p("VFMADD231PS %s, Y2, Y3", constant("negLn2High"))
	g.p("VFMADD231PS %s, Y2, Y3", constant("negLn2Low"))
	g.broadcast(ymm, "expP0", 4)
	for _, c := range []string{"expP1", "expP2", "expP3", "expP4", "expP5"} {
		g.p("VFMADD213PS %s, Y3, Y4", constant(c))
	}
	g.p("VMULPS Y3, Y3, Y5")
	g.p("VFMADD213PS Y3, Y5, Y4")
	g.p("VADDPS %s, Y4, Y4", constant("one"))
	g.p("VPADDD %s, Y1, Y1", constant("expBias"))
	g.p("VPSLLD $23, Y1, Y1")
	g.p("VMULPS Y1, Y4, Y4")
	g.p("VCMPPS $17, %s, Y0, Y5", constant("expLow")) // below the range: 0
	g.p("VANDNPS Y4, Y5, Y4")
	g.p("VCMPPS $30, %s, Y0, Y5", constant("expHigh")) // above it: infinity
	g.p("VMOVUPS %s, Y3", constant("infinity"))
	g.p("VBLENDVPS Y5, Y3, Y4, Y4")
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

// reduce writes the tree of function reduce over register r; it uses X1.
func (g *generator) reduce(op string, r int) { g.reduceBy(op, r, 1) }

// reduceBy is reduce by way of a register.
func (g *generator) reduceBy(op string, r, by int) {
	g.p("VEXTRACTF128 $1, Y%d, X%d", r, by)
	g.p("%s X%d, X%d, X%d", op, r, by, r)
	g.p("VPERMILPD $1, X%d, X%d", r, by)
	g.p("%s X%d, X%d, X%d", op, r, by, r)
	g.p("VMOVSHDUP X%d, X%d", r, by)
	g.p("%s X%d, X%d, X%d", op, r, by, r)
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
	if v == zmm {
		g.gates512(name, gelu)
		return
	}
	g.broadcast(ymm, "one", 10)
	g.broadcast(ymm, "sign", 11)
	g.eights(name, func() {
		g.p("VMOVUPS (SI)(DX*1), Y9")
		if gelu {
			g.p("VMULPS Y9, Y9, Y0")
			g.p("VFMADD132PS %s, Y10, Y0", constant("geluCubic"))
			g.p("VMULPS Y0, Y9, Y0")
			g.p("VMULPS %s, Y0, Y0", constant("geluSlope"))
		} else {
			g.p("VMOVAPS Y9, Y0")
		}
		g.p("VXORPS Y11, Y0, Y0")
		g.exp()
		g.p("VADDPS Y10, Y4, Y4")
		g.p("VDIVPS Y4, Y9, Y4")
		g.p("VMULPS (BX)(DX*1), Y4, Y4")
		g.p("VMOVUPS Y4, (DI)(DX*1)")
	})
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

// fetch writes the kernel that asks for lines of memory.
func (g *generator) fetch() {
	const name = "fetch"
	g.function(name, "(from unsafe.Pointer, bytes int)", "asks for some bytes in advance.", 16)
	g.p("MOVQ from+0(FP), SI")
	g.p("MOVQ bytes+8(FP), CX")
	g.label("%s_loop", name)
	g.p("PREFETCHT0 (SI)")
	g.p("ADDQ $64, SI")
	g.p("SUBQ $64, CX")
	g.p("JG %s_loop", name)
	g.p("RET")
}
