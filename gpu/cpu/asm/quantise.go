package main

// Offsets of the fields of type quantiseCall in micro_quant.go.
const (
	quantiseBlocks, quantiseX, quantiseQ, quantiseMeta = 0, 8, 16, 24
	quantiseOffset, quantiseHalves                     = 32, 40
)

// quantise writes the kernel that turns a row of activations into integers, step by step as
// quantiseBlock does. Y0…Y3 hold the 32 numbers of a block.
func (g *generator) quantise() {
	const name = "quantiseAVX2"
	g.function(name, "(c *quantiseCall)", "is quantiseRow.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", quantiseBlocks)
	g.p("MOVQ %d(AX), SI", quantiseX)
	g.p("MOVQ %d(AX), DI", quantiseQ)
	g.p("MOVQ %d(AX), BX", quantiseMeta)
	g.p("MOVL %d(AX), R10", quantiseOffset)
	g.p("NEGL R10")
	g.p("MOVQ %d(AX), R11", quantiseHalves)
	g.broadcast(ymm, "magnitude", 15)
	g.broadcast(ymm, "quantTop", 14)
	g.p("VMOVDQU ·packOrder<>(SB), Y13")
	g.label("%s_loop", name)
	g.largest()
	g.p("VMOVD X4, R8")
	g.p("CMPL R8, $0x%x", quantTiny)
	g.p("JB %s_tiny", name)
	g.p("CMPL R8, $0x%x", quantBroken)
	g.p("JAE %s_broken", name)
	g.roundAndSum()
	g.label("%s_meta", name)
	g.p("VMOVSS X6, %d(BX)", metaScale)
	g.p("VMOVSS X7, %d(BX)", metaSum)
	g.p("IMULL R10, R8")
	g.p("IMULL R10, R9")
	g.p("TESTQ R11, R11")
	g.p("JNZ %s_halves", name)
	g.p("ADDL R9, R8")
	g.label("%s_halves", name)
	g.p("MOVL R8, %d(BX)", metaStart)
	g.p("MOVL R9, %d(BX)", metaStart+4)
	g.p("ADDQ $128, SI")
	g.p("ADDQ $32, DI")
	g.p("ADDQ $%d, BX", metaSize)
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
	g.label("%s_tiny", name)
	g.p("VXORPS X6, X6, X6")
	g.p("JMP %s_zeros", name)
	g.label("%s_broken", name)
	g.p("VMOVSS %s, X6", constant("nan"))
	g.label("%s_zeros", name)
	g.p("VXORPS Y0, Y0, Y0")
	g.p("VMOVDQU Y0, (DI)")
	g.p("VMULSS X0, X6, X7")
	g.p("XORL R8, R8")
	g.p("XORL R9, R9")
	g.p("JMP %s_meta", name)
}

// Bits of magnitudes: see quantise.go.
const quantTiny, quantBroken = (127 - 100) << 23, 0x7f800000

// largest leaves the largest magnitude of a block in X4.
func (g *generator) largest() {
	for i := range 4 {
		g.p("VMOVUPS %d(SI), Y%d", 32*i, i)
		g.p("VPAND Y15, Y%d, Y%d", i, 4+i)
	}
	g.p("VPMAXUD Y5, Y4, Y4")
	g.p("VPMAXUD Y7, Y6, Y6")
	g.p("VPMAXUD Y6, Y4, Y4")
	g.p("VEXTRACTI128 $1, Y4, X5")
	g.p("VPMAXUD X5, X4, X4")
	g.p("VPSHUFD $0x4e, X4, X5")
	g.p("VPMAXUD X5, X4, X4")
	g.p("VPSHUFD $0xb1, X4, X5")
	g.p("VPMAXUD X5, X4, X4")
}

// roundAndSum stores the integers, and leaves their sums, of 16 each, in R8 and R9, the scale in X6
// and the scaled sum in X7.
func (g *generator) roundAndSum() {
	g.p("VDIVSS X4, X14, X5")
	g.p("VDIVSS X14, X4, X6")
	g.p("VBROADCASTSS X5, Y5")
	for i := range 4 {
		g.p("VMULPS Y5, Y%d, Y%d", i, i)
		g.p("VCVTPS2DQ Y%d, Y%d", i, i)
	}
	g.p("VPADDD Y0, Y1, Y8")
	g.p("VPADDD Y2, Y3, Y9")
	g.p("VPHADDD Y9, Y8, Y8")
	g.p("VEXTRACTI128 $1, Y8, X9")
	g.p("VPADDD X9, X8, X8") // lanes: first, first, second, second
	g.p("VPHADDD X8, X8, X8")
	g.p("VMOVD X8, R8")
	g.p("VPEXTRD $1, X8, R9")
	g.p("VPACKSSDW Y1, Y0, Y0")
	g.p("VPACKSSDW Y3, Y2, Y2")
	g.p("VPACKSSWB Y2, Y0, Y0")
	g.p("VPERMD Y0, Y13, Y0")
	g.p("VMOVDQU Y0, (DI)")
	g.p("LEAL (R8)(R9*1), DX")
	g.p("VXORPS X7, X7, X7")
	g.p("VCVTSI2SSL DX, X7, X7")
	g.p("VMULSS X6, X7, X7")
}
