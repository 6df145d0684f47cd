package main

// softmax256 writes softmaxStep of many lines, pass by pass as softmax512 does.
func (g *generator) softmax256() {
	const name = "softmaxAVX2"
	g.function(name, "(c *softmaxCall)", "is softmaxStep of every line of a call.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.softPass(name+"_top", softCorrection, func() {
		g.p("VBROADCASTSS %d(AX), Y3", softScale)
		g.p("VBROADCASTSS (BX), Y2")
		for at := 0; at < 256; at += 32 {
			g.p("VMULPS %d(SI), Y3, Y0", at)
			g.p("VMAXPS Y2, Y0, Y2")
		}
		g.softCorrect()
	})
	g.softPass(name+"_weights", softSum, func() {
		for at := 0; at < 256; at += 128 {
			g.p("VBROADCASTSS %d(AX), Y8", softScale)
			g.p("VBROADCASTSS (BX), Y9")
			for i := range 4 {
				g.p("VMULPS %d(SI), Y8, Y%d", at+32*i, i)
				g.p("VSUBPS Y9, Y%d, Y%d", i, i)
			}
			g.exps256(4)
			for i := range 4 {
				g.p("VMOVUPS Y%d, %d(SI)", 8+i, at+32*i)
			}
		}
	})
	g.softPass(name+"_sums", softSum, g.softSum)
	g.p("VMOVUPS %d(AX), Y0", softCorrection)
	g.p("VMOVUPS %d(AX), Y1", softCorrection+32)
	g.exps256(2)
	g.p("VMOVUPS Y8, %d(AX)", softCorrection)
	g.p("VMOVUPS Y9, %d(AX)", softCorrection+32)
	g.p("MOVQ %d(AX), CX", softLines)
	g.p("MOVQ %d(AX), DI", softTotal)
	g.p("LEAQ %d(AX), BX", softCorrection)
	g.label("%s_total", name)
	g.p("VMOVSS (DI), X0")
	g.p("VMOVSS (BX), X1")
	g.p("VFMADD213SS %d(BX), X1, X0", softSum-softCorrection)
	g.p("VMOVSS X0, (DI)")
	g.p("ADDQ $4, DI")
	g.p("ADDQ $4, BX")
	g.p("DECQ CX")
	g.p("JNZ %s_total", name)
	g.softRescale(name, ymm)
	g.p("VZEROUPPER")
	g.p("RET")
}

// exps256 writes the exponentials of Y0… to Y8…, of up to four vectors side by side and each step
// by step as exp32 does. No argument may be greater than zero. What lies below the range is
// computed at its edge, and multiplied by zero.
func (g *generator) exps256(n int) {
	each := func(format string, registers ...int) {
		for i := range n {
			args := make([]any, len(registers))
			for k, r := range registers {
				args[k] = r + i
			}
			g.p(format, args...)
		}
	}
	g.p("VMOVUPS %s, Y8", constant("expLow"))
	each("VCMPPS $17, Y8, Y%d, Y%d", 0, 12)
	each("VMAXPS Y%d, Y8, Y%d", 0, 0) // a NaN stays one
	each("VMOVUPS "+constant("expMagic")+", Y%d", 4)
	each("VFMADD231PS "+constant("log2e")+", Y%d, Y%d", 0, 4)
	each("VSUBPS "+constant("expMagic")+", Y%d, Y%d", 4, 8)
	each("VFMADD231PS "+constant("negLn2High")+", Y%d, Y%d", 8, 0)
	each("VFMADD231PS "+constant("negLn2Low")+", Y%d, Y%d", 8, 0)
	each("VPADDD "+constant("expBias")+", Y%d, Y%d", 4, 4)
	each("VPSLLD $23, Y%d, Y%d", 4, 4)
	each("VANDNPS Y%d, Y%d, Y%d", 4, 12, 4)
	each("VMOVUPS "+constant("expP0")+", Y%d", 8)
	for _, c := range []string{"expP1", "expP2", "expP3", "expP4", "expP5"} {
		each("VFMADD213PS "+constant(c)+", Y%d, Y%d", 0, 8)
	}
	each("VMULPS Y%d, Y%d, Y%d", 0, 0, 12)
	each("VFMADD213PS Y%d, Y%d, Y%d", 0, 12, 8)
	each("VADDPS "+constant("one")+", Y%d, Y%d", 8, 8)
	each("VMULPS Y%d, Y%d, Y%d", 4, 8, 8)
}
