package main

import "fmt"

// Registers of up to four vectors whose exponentials are computed side by side, so that the steps
// of one fill the waits of the others. What goes in lies in argument, what comes out in result.
const (
	argument = 4
	scaled   = 8
	whole    = 12
	reduced  = 16
	result   = 20
)

// expConstants are those kept in registers from 24 on.
var expConstants = []string{"log2e", "expMagic", "negLn2High", "negLn2Low", "one", "expBias",
	"expP0", "infinity"}

// loadExpConstants writes what exps wants in registers.
func (g *generator) loadExpConstants() {
	for i, name := range expConstants {
		g.p("VBROADCASTSS %s, Z%d", constant(name), 24+i)
	}
}

// exps writes the exponentials of n vectors, each step by step as exp32 does.
func (g *generator) exps(n int) {
	each := func(format string, of func(i int) []any) {
		for i := range n {
			g.p(format, of(i)...)
		}
	}
	each("VMOVAPS Z25, Z%d", func(i int) []any { return []any{scaled + i} })
	each("VFMADD231PS Z24, Z%d, Z%d", func(i int) []any { return []any{argument + i, scaled + i} })
	each("VSUBPS Z25, Z%d, Z%d", func(i int) []any { return []any{scaled + i, whole + i} })
	each("VMOVAPS Z%d, Z%d", func(i int) []any { return []any{argument + i, reduced + i} })
	each("VFMADD231PS Z26, Z%d, Z%d", func(i int) []any { return []any{whole + i, reduced + i} })
	each("VFMADD231PS Z27, Z%d, Z%d", func(i int) []any { return []any{whole + i, reduced + i} })
	each("VMOVAPS Z30, Z%d", func(i int) []any { return []any{result + i} })
	for _, c := range []string{"expP1", "expP2", "expP3", "expP4", "expP5"} {
		each("VFMADD213PS.BCST "+constant(c)+", Z%d, Z%d",
			func(i int) []any { return []any{reduced + i, result + i} })
	}
	each("VMULPS Z%d, Z%d, Z%d",
		func(i int) []any { return []any{reduced + i, reduced + i, whole + i} })
	each("VFMADD213PS Z%d, Z%d, Z%d",
		func(i int) []any { return []any{reduced + i, whole + i, result + i} })
	each("VADDPS Z28, Z%d, Z%d", func(i int) []any { return []any{result + i, result + i} })
	each("VPADDD Z29, Z%d, Z%d", func(i int) []any { return []any{scaled + i, scaled + i} })
	each("VPSLLD $23, Z%d, Z%d", func(i int) []any { return []any{scaled + i, scaled + i} })
	each("VCMPPS.BCST $21, "+constant("expLow")+", Z%d, K%d", // not below the range
		func(i int) []any { return []any{argument + i, 1 + i} })
	each("VMULPS.Z Z%d, Z%d, K%d, Z%d",
		func(i int) []any { return []any{scaled + i, result + i, 1 + i, result + i} })
	each("VCMPPS.BCST $30, "+constant("expHigh")+", Z%d, K%d", // above it: infinity
		func(i int) []any { return []any{argument + i, 1 + i} })
	each("VMOVAPS Z31, K%d, Z%d", func(i int) []any { return []any{1 + i, result + i} })
}

// Offsets of the fields of type softmaxCall in micro.go, and the distance of lines of scores.
const (
	softScores, softLines, softTop, softTotal = 0, 8, 16, 24
	softScale, softCorrection, softSum        = 32, 100, 164
	softOutput, softWidth, softPowers         = 232, 240, 248
	softPowersLine                            = 256
	softStride                                = 4 * (16 + 64 + 16)
)

// Constants of softmax512, in registers from 16 on, and its other registers.
var soft512 = []string{"expLow", "log2e", "expMagic", "negLn2High", "negLn2Low", "expFloor",
	"expP0", "expP1", "expP2", "expP3", "expP4", "expP5", "one"}

const soft512First, soft512Scale, soft512Top = 16, 29, 30

// softmax512 writes softmaxStep of many lines. Lanes are folded to eight before anything is summed,
// as function softmaxBlock says.
func (g *generator) softmax512() {
	const name = "softmaxAVX512"
	g.function(name, "(c *softmaxCall)", "is softmaxStep of every line of a call.", 8)
	g.p("MOVQ c+0(FP), AX")
	for i, c := range soft512 {
		g.p("VBROADCASTSS %s, Z%d", constant(c), soft512First+i)
	}
	g.p("VBROADCASTSS %d(AX), Z%d", softScale, soft512Scale)
	g.p("VBROADCASTSS %s, Z31", constant("negInfinity"))
	g.softPass(name+"_top", softCorrection, g.softTop)
	g.softPass(name+"_weights", softSum, g.softWeights)
	g.softPass(name+"_sums", softSum, g.softSum)
	g.p("VMOVUPS %d(AX), Z0", softCorrection)
	g.softExps(1)
	g.p("VMOVUPS Z12, %d(AX)", softCorrection)
	g.p("MOVQ %d(AX), CX", softLines)
	g.p("MOVL $1, DX")
	g.p("SHLL CX, DX")
	g.p("DECL DX")
	g.p("KMOVW DX, K1")
	g.p("MOVQ %d(AX), DI", softTotal)
	g.p("VMOVUPS.Z (DI), K1, Z0")
	g.p("VFMADD213PS %d(AX), Z12, Z0", softSum)
	g.p("VMOVUPS Z0, K1, (DI)")
	g.softRescale(name, zmm)
	g.p("VZEROUPPER")
	g.p("RET")
}

// softPass writes a loop over the lines: SI are a line's scores, BX its top, DI its number in a
// field of the call.
func (g *generator) softPass(name string, field int, body func()) {
	g.p("MOVQ %d(AX), SI", softScores)
	g.p("MOVQ %d(AX), CX", softLines)
	g.p("MOVQ %d(AX), BX", softTop)
	g.p("LEAQ %d(AX), DI", field)
	g.label("%s", name)
	body()
	g.p("ADDQ $%d, SI", softStride)
	g.p("ADDQ $4, BX")
	g.p("ADDQ $4, DI")
	g.p("DECQ CX")
	g.p("JNZ %s", name)
}

// softRescale writes the way of the outputs to their new scale. A correction of one changes nothing
// and is common, once the largest score was seen.
func (g *generator) softRescale(name string, v vector) {
	g.p("MOVQ %d(AX), CX", softLines)
	g.p("MOVQ %d(AX), DI", softOutput)
	g.p("LEAQ %d(AX), BX", softCorrection)
	g.label("%s_line", name)
	g.p("MOVQ %d(AX), DX", softWidth)
	g.p("LEAQ (DI)(DX*4), R8")
	g.p("CMPL (BX), $0x%x", f32(1))
	g.p("JEQ %s_same", name)
	g.p("VBROADCASTSS (BX), %s", v.reg(1))
	g.label("%s_scale", name)
	g.p("VMULPS (DI), %s, %s", v.reg(1), v.reg(0))
	g.p("VMOVUPS %s, (DI)", v.reg(0))
	g.p("ADDQ $%d, DI", v.bytes)
	g.p("CMPQ DI, R8")
	g.p("JB %s_scale", name)
	g.label("%s_same", name)
	g.p("MOVQ R8, DI")
	g.p("ADDQ $4, BX")
	g.p("DECQ CX")
	g.p("JNZ %s_line", name)
}

// softTop writes a line's new top, and into its correction what the exponential is taken of. All
// lines' tops come before the first weight: weights that wait for a top would hold up others.
// VMAXPS gives its second source, the first operand here, unless the other is greater. Scores are
// scaled once the largest is known: a scale is greater than zero, so that their order stays.
func (g *generator) softTop() {
	g.p("VMOVUPS (SI), Z0")
	g.p("VMAXPS Z31, Z0, Z2")
	for at := 64; at < 256; at += 64 {
		g.p("VMOVUPS %d(SI), Z0", at)
		g.p("VMAXPS Z2, Z0, Z2")
	}
	g.p("VEXTRACTF32X8 $1, Z2, Y1")
	g.p("VMAXPS Y2, Y1, Y2")
	g.reduce("VMAXPS", 2)
	g.p("VMULSS X%d, X2, X2", soft512Scale)
	g.p("VMOVSS (BX), X1")
	g.p("VMAXSS X1, X2, X2")
	g.p("VSUBSS X2, X1, X1")
	g.p("VMOVSS X1, (DI)")
	g.p("VMOVSS X2, (BX)")
}

// softWeights writes a line's weights.
func (g *generator) softWeights() {
	s, at := side{g, 4}, [2]int{0, 64}
	g.p("VBROADCASTSS (BX), Z%d", soft512Top)
	s.p(fmt.Sprintf("VMULPS %%d(SI), Z%d, Z%%d", soft512Scale), at, [2]int{0, 1})
	s.p(fmt.Sprintf("VSUBPS Z%d, Z%%d, Z%%d", soft512Top), [2]int{0, 1}, [2]int{0, 1})
	g.softExps(4)
	s.p("VMOVUPS Z%d, %d(SI)", [2]int{12, 1}, at)
}

// softExps writes the exponentials of up to four vectors from Z0 on to those from Z12 on, each step
// by step as exp32 does. No argument may be greater than zero. Results are no denormals, so that
// adding to an exponent is a product with a power of two; to that of a NaN, zero is added.
func (g *generator) softExps(n int) {
	s, c := side{g, n}, func(i int) [2]int { return [2]int{soft512First + i, 0} }
	argument, power, whole, result := [2]int{0, 1}, [2]int{4, 1}, [2]int{8, 1}, [2]int{12, 1}
	inside := [2]int{1, 1}
	s.p("VMOVAPS Z%d, Z%d", c(2), power)
	s.p("VFMADD231PS Z%d, Z%d, Z%d", c(1), argument, power)
	s.p("VCMPPS $21, Z%d, Z%d, K%d", c(0), argument, inside) // not below the range
	s.p("VSUBPS Z%d, Z%d, Z%d", c(2), power, whole)
	s.p("VMAXPS Z%d, Z%d, Z%d", c(5), power, power)
	s.p("VFMADD231PS Z%d, Z%d, Z%d", c(3), whole, argument)
	s.p("VFMADD231PS Z%d, Z%d, Z%d", c(4), whole, argument)
	s.p("VPSLLD $23, Z%d, Z%d", power, power)
	s.p("VMOVAPS Z%d, Z%d", c(6), result)
	for i := range 5 {
		s.p("VFMADD213PS Z%d, Z%d, Z%d", c(7+i), argument, result)
	}
	s.p("VMULPS Z%d, Z%d, Z%d", argument, argument, whole)
	s.p("VFMADD213PS Z%d, Z%d, Z%d", argument, whole, result)
	s.p("VADDPS Z%d, Z%d, Z%d", c(12), result, result)
	s.p("VPADDD.Z Z%d, Z%d, K%d, Z%d", power, result, inside, result)
}

// softSum writes the sum of a line's weights. It comes after the weights of all lines: its chain of
// additions is long, and the processor looks only so far ahead.
func (g *generator) softSum() {
	g.p("VMOVUPS (SI), Y0")
	for at := 32; at < 256; at += 32 {
		g.p("VADDPS %d(SI), Y0, Y0", at)
	}
	g.reduce("VADDPS", 0)
	g.p("VMOVSS X0, (DI)")
}

// gates512 writes the loop of a gate over 64 elements a turn, and one over the 16s that are left.
func (g *generator) gates512(name string, gelu bool) {
	g.loadExpConstants()
	g.broadcast(zmm, "sign", 3)
	g.p("XORQ DX, DX")
	for _, n := range []int{4, 1} {
		g.label("%s_by%d", name, n)
		g.p("SUBQ $%d, CX", 16*n)
		g.p("JLT %s_end%d", name, n)
		g.gateArguments(gelu, n)
		g.exps(n)
		for i := range n {
			g.p("VADDPS Z28, Z%d, Z%d", result+i, result+i)
		}
		for i := range n {
			g.p("VMOVUPS %d(SI)(DX*1), Z%d", 64*i, argument+i)
			g.p("VDIVPS Z%d, Z%d, Z%d", result+i, argument+i, result+i)
		}
		for i := range n {
			g.p("VMULPS %d(BX)(DX*1), Z%d, Z%d", 64*i, result+i, result+i)
			g.p("VMOVUPS Z%d, %d(DI)(DX*1)", result+i, 64*i)
		}
		g.p("ADDQ $%d, DX", 64*n)
		g.p("JMP %s_by%d", name, n)
		g.label("%s_end%d", name, n)
		g.p("ADDQ $%d, CX", 16*n)
	}
	g.p("VZEROUPPER")
	g.p("RET")
}

// gateArguments writes what the exponential of n vectors of gates is taken of.
func (g *generator) gateArguments(gelu bool, n int) {
	for i := range n {
		from, to := fmt.Sprintf("%d(SI)(DX*1)", 64*i), argument+i
		if !gelu {
			g.p("VXORPS %s, Z3, Z%d", from, to)
			continue
		}
		g.p("VMOVUPS %s, Z%d", from, to)
		g.p("VMULPS Z%d, Z%d, Z%d", to, to, result+i)
		g.p("VFMADD132PS.BCST %s, Z28, Z%d", constant("geluCubic"), result+i)
		g.p("VMULPS Z%d, Z%d, Z%d", result+i, to, to)
		g.p("VMULPS.BCST %s, Z%d, Z%d", constant("geluSlope"), to, to)
		g.p("VXORPS Z3, Z%d, Z%d", to, to)
	}
}
