package main

import "fmt"

// Constants of exp256Whole and of exp256Parts, in registers from 9 on.
var (
	expWhole = []string{"expLeast", "log2e", "expMagic", "negLn2High", "negLn2Low"}
	expParts = []string{"expP0", "expP1", "expP2", "expP3", "expP4", "expP5"}
)

// softmax256 writes softmaxStep of many lines, in passes over them: their tops, the first half of
// all exponentials, and the second. Between the two halves they lie in memory: there are too few
// registers for the constants of both, and chains as long as both let too few run side by side.
func (g *generator) softmax256() {
	const name = "softmaxAVX2"
	g.function(name, "(c *softmaxCall)", "is softmaxStep of every line of a call of up to 8.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("VMOVSS %d(AX), X3", softScale)
	g.p("VMOVUPS %s, Y4", constant("negInfinity"))
	g.p("VMOVUPS ·laneDown<>(SB), Y5")
	g.softPass(name+"_top", softCorrection, g.softTop256)
	g.softCorrections256()
	g.p("MOVQ %d(AX), R8", softPowers)
	g.loadExp256(expWhole)
	g.p("VBROADCASTSS %d(AX), Y14", softScale)
	g.softPass(name+"_whole", softSum, g.softWhole256)
	g.p("MOVQ %d(AX), R8", softPowers)
	g.loadExp256(expParts)
	g.softPass(name+"_weights", softSum, g.softWeights256)
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

// softTop256 writes a line's new top, and puts what its correction is the exponential of behind
// those of the lines before, which go down by a lane: eight numbers written one by one could not be
// loaded before they are in the cache. Scores are scaled once the largest is known: a scale is
// greater than zero, so that their order stays.
func (g *generator) softTop256() {
	g.p("VMOVAPS Y4, Y2")
	for at := 0; at < 256; at += 32 {
		g.p("VMOVUPS %d(SI), Y0", at)
		g.p("VMAXPS Y2, Y0, Y2")
	}
	g.reduce("VMAXPS", 2)
	g.p("VMULSS X3, X2, X2")
	g.p("VMOVSS (BX), X1")
	g.p("VMAXSS X1, X2, X2")
	g.p("VSUBSS X2, X1, X1")
	g.p("VBLENDPS $1, Y1, Y6, Y6")
	g.p("VPERMPS Y6, Y5, Y6")
	g.p("VMOVSS X2, (BX)")
}

// softCorrections256 writes the corrections, so that the last line's lane 7 comes to its place.
func (g *generator) softCorrections256() {
	g.p("VMOVAPS Y6, Y0")
	g.loadExp256(expWhole)
	g.exp256Whole(1)
	g.p("VMOVAPS Y3, Y8")
	g.loadExp256(expParts)
	g.exp256Parts(1, "Y%d", [2]int{8, 0})
	g.p("MOVQ %d(AX), CX", softLines)
	g.p("VMOVUPS Y3, %d(AX)(CX*4)", softCorrection-32)
}

// softWhole256 writes the first half of a line's exponentials, in place of its scores and at R8.
func (g *generator) softWhole256() {
	g.p("VBROADCASTSS (BX), Y15")
	threes(g, func(s side, at [2]int) {
		s.p("VMULPS %d(SI), Y14, Y%d", at, [2]int{0, 1})
		s.p("VSUBPS Y15, Y%d, Y%d", [2]int{0, 1}, [2]int{0, 1})
		g.exp256Whole(s.n)
		s.p("VMOVUPS Y%d, %d(SI)", [2]int{0, 1}, at)
		s.p("VMOVUPS Y%d, %d(R8)", [2]int{3, 1}, at)
	})
	g.p("ADDQ $%d, R8", softPowersLine)
}

// softWeights256 writes the second half, a line's weights, and their sum.
func (g *generator) softWeights256() {
	threes(g, func(s side, at [2]int) {
		s.p("VMOVUPS %d(SI), Y%d", at, [2]int{0, 1})
		g.exp256Parts(s.n, "%d(R8)", at)
		s.p("VMOVUPS Y%d, %d(SI)", [2]int{3, 1}, at)
		for i := range s.n {
			if at[0]+i == 0 {
				g.p("VMOVAPS Y3, Y15")
			} else {
				g.p("VADDPS Y%d, Y15, Y15", 3+i)
			}
		}
	})
	g.reduceBy("VADDPS", 15, 0)
	g.p("VMOVSS X15, (DI)")
	g.p("ADDQ $%d, R8", softPowersLine)
}

// threes writes what is done to a line's eight vectors, up to three of them side by side.
func threes(g *generator, body func(s side, at [2]int)) {
	for at := 0; at < 256; at += 96 {
		body(side{g, min(3, (256-at)/32)}, [2]int{at, 32})
	}
}

// side writes instructions for n vectors side by side.
type side struct {
	g *generator
	n int
}

// p appends a line for each vector: operands are the first one's, and how far to that of the next.
func (s side) p(format string, operands ...[2]int) {
	for i := range s.n {
		args := make([]any, len(operands))
		for k, o := range operands {
			args[k] = o[0] + i*o[1]
		}
		s.g.p(format, args...)
	}
}

// loadExp256 loads constants of an exponential.
func (g *generator) loadExp256(names []string) {
	for i, name := range names {
		g.p("VMOVUPS %s, Y%d", constant(name), 9+i)
	}
}

// exp256Whole writes the first half of exp32, for up to three vectors from Y0 on: from Y3 on what
// is to be added to exponents, and what is left of the arguments. None may be greater than zero.
// Those below the range become -88, so that nothing overflows; a NaN stays one and adds nothing.
func (g *generator) exp256Whole(n int) {
	s := side{g, n}
	argument, power, whole := [2]int{0, 1}, [2]int{3, 1}, [2]int{6, 1}
	s.p("VMAXPS Y%d, Y9, Y%d", argument, argument)
	s.p("VMOVAPS Y11, Y%d", power)
	s.p("VFMADD231PS Y10, Y%d, Y%d", argument, power)
	s.p("VSUBPS Y11, Y%d, Y%d", power, whole)
	s.p("VMAXPS "+constant("expFloor")+", Y%d, Y%d", power, power)
	s.p("VPSLLD $23, Y%d, Y%d", power, power)
	s.p("VFMADD231PS Y12, Y%d, Y%d", whole, argument)
	s.p("VFMADD231PS Y13, Y%d, Y%d", whole, argument)
}

// exp256Parts writes the second half: to Y3 on what belongs to arguments from Y0 on and exponents
// at some operands. Down to the end of the range results are no denormals, so that adding to an
// exponent is a product with a power of two. Below, the sum is that of a smaller number than at the
// end, and hidden.
func (g *generator) exp256Parts(n int, at string, power [2]int) {
	s := side{g, n}
	argument, result, square := [2]int{0, 1}, [2]int{3, 1}, [2]int{6, 1}
	s.p("VMOVAPS Y9, Y%d", result)
	for i := range 5 {
		s.p(fmt.Sprintf("VFMADD213PS Y%d, Y%%d, Y%%d", 10+i), argument, result)
	}
	s.p("VMULPS Y%d, Y%d, Y%d", argument, argument, square)
	s.p("VFMADD213PS Y%d, Y%d, Y%d", argument, square, result)
	s.p("VADDPS "+constant("one")+", Y%d, Y%d", result, result)
	s.p("VPADDD "+at+", Y%d, Y%d", power, result, result)
	s.p("VCMPPS $17, "+constant("expEnd")+", Y%d, Y%d", result, square)
	s.p("VANDNPS Y%d, Y%d, Y%d", result, square, result)
}
