package main

// limits writes the loops that find out what the processor can do at most: each does one kind of
// work and nothing else, with enough independent chains that no instruction waits for another.
func (g *generator) limits() {
	for _, v := range []vector{ymm, zmm} {
		g.limitFMA(v)
		g.limitRead(v)
	}
	g.limitDot256()
	g.limitSmall256()
	g.limitDotVNNI()
	g.limitDot512()
	g.limitPairs()
	g.limitTiles()
}

// limitChains is how many registers hold a chain in the loops of a vector width.
func limitChains(v vector) int {
	if v == zmm {
		return 24
	}
	return 12
}

// limitLoop writes a loop over CX turns.
func (g *generator) limitLoop(name string, body func()) {
	g.p("MOVQ turns+0(FP), CX")
	g.label("%s_loop", name)
	body()
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// limitFMA writes chains of fused multiply-adds.
func (g *generator) limitFMA(v vector) {
	name := "limitFMA" + v.isa
	g.function(name, "(turns int)", "does a fused multiply-add of each chain a turn.", 8)
	g.p("MOVL $0x3f800000, AX")
	g.p("MOVQ AX, X0")
	g.p("VBROADCASTSS X0, %s", v.reg(0))
	for i := range limitChains(v) {
		g.p("VMOVAPS %s, %s", v.reg(0), v.reg(4+i))
	}
	g.limitLoop(name, func() {
		for i := range limitChains(v) {
			g.p("VFMADD231PS %s, %s, %s", v.reg(0), v.reg(0), v.reg(4+i))
		}
	})
}

const limitDotDoc = "adds the products of a vector of bytes to each chain a turn."

// limitDot256 writes what AVX2 has for products of bytes: pairs, pairs of pairs, and the sum.
func (g *generator) limitDot256() {
	const name = "limitDotAVX2"
	g.function(name, "(turns int)", limitDotDoc, 8)
	for i := range 16 {
		g.p("VPXOR Y%d, Y%d, Y%d", i, i, i)
	}
	g.limitLoop(name, func() {
		const chains = 8
		for i := range chains {
			t := 3 + i%4
			g.p("VPMADDUBSW Y0, Y1, Y%d", t)
			g.p("VPMADDWD Y2, Y%d, Y%d", t, t)
			g.p("VPADDD Y%d, Y%d, Y%d", t, 8+i, 8+i)
		}
	})
}

// limitSmall256 writes what AVX2 has where four sums of pairs fit into 16 bits, see quantRuns.
func (g *generator) limitSmall256() {
	const name, chains = "limitSmallAVX2", 3
	g.function(name, "(turns int)",
		"adds the products of four vectors of small bytes to each chain a turn.", 8)
	for i := range 16 {
		g.p("VPXOR Y%d, Y%d, Y%d", i, i, i)
	}
	g.limitLoop(name, func() {
		for i := range chains {
			run, t := 3+i, 6+2*i
			g.p("VPMADDUBSW Y0, Y1, Y%d", run)
			for j := range 3 {
				g.p("VPMADDUBSW Y0, Y1, Y%d", t+j%2)
				g.p("VPADDW Y%d, Y%d, Y%d", t+j%2, run, run)
			}
			g.p("VPMADDWD Y2, Y%d, Y%d", run, run)
			g.p("VPADDD Y%d, Y%d, Y%d", run, 12+i, 12+i)
		}
	})
}

// limitDotVNNI writes the same for AVX-VNNI.
func (g *generator) limitDotVNNI() {
	g.limitDots("limitDotAVXVNNI", ymm, func(to int) { g.dotBytes(to, 1, 0) })
}

// limitDots writes a loop of instructions that each have the products and the sums.
func (g *generator) limitDots(name string, v vector, dot func(to int)) {
	g.function(name, "(turns int)", limitDotDoc, 8)
	for i := range v.bytes / 2 { // its registers
		g.p("%s %s, %[2]s, %[2]s", v.integer("VPXOR"), v.reg(i))
	}
	g.limitLoop(name, func() {
		for i := range limitChains(v) {
			dot(4 + i)
		}
	})
}

// limitDot512 writes the same for VNNI, which has it in one instruction.
func (g *generator) limitDot512() {
	g.limitDots("limitDotAVX512", zmm, func(to int) { g.p("VPDPBUSD Z0, Z1, Z%d", to) })
}

// limitPairs writes products of pairs of bfloat16.
func (g *generator) limitPairs() {
	const name = "limitPairsAVX512"
	g.function(name, "(turns int)", "adds products of a vector of pairs to each chain a turn.", 8)
	for i := range 32 {
		g.zero(zmm, i)
	}
	g.limitLoop(name, func() {
		for i := range limitChains(zmm) {
			g.dotBF16(4+i, 1, 0)
		}
	})
}

// limitTiles writes products of tiles: T0 to T5 hold sums, T6 and T7 what is multiplied. They come
// from one tile of zeros.
func (g *generator) limitTiles() {
	const name, sums = "limitTilesAMX", 6
	g.function(name, "(config, zeros *byte, turns int)",
		"adds a product of two tiles of bfloat16 to each tile of sums a turn.", 24)
	g.p("MOVQ config+0(FP), DX")
	g.p("MOVQ zeros+8(FP), SI")
	g.p("MOVQ turns+16(FP), CX")
	g.p("MOVQ $64, R10")
	g.loadConfig("DX")
	for tile := range sums + 2 {
		g.loadTile(tile, "SI", "R10", 0)
	}
	g.label("%s_loop", name)
	for tile := range sums {
		g.dotTiles(tile, 6, 7)
	}
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.releaseTiles()
	g.p("RET")
	g.function("limitTilesCode", "() (address uintptr)",
		"is where the code of "+name+" lies, for the test that reads it.", 8)
	g.p("LEAQ ·%s(SB), AX", name)
	g.p("MOVQ AX, address+0(FP)")
	g.p("RET")
}

// limitAhead is how far before its use the reading loop asks for a line.
const limitAhead = 1024

// limitRead writes a loop that loads 512 bytes a turn and does nothing with them.
func (g *generator) limitRead(v vector) {
	name := "limitRead" + v.isa
	g.function(name, "(from *byte, turns int)", "loads 512 bytes a turn.", 16)
	g.p("MOVQ from+0(FP), SI")
	g.p("MOVQ turns+8(FP), CX")
	g.label("%s_loop", name)
	for at := 0; at < 512; at += 64 {
		g.p("PREFETCHT0 %d(SI)", limitAhead+at)
		for in := 0; in < 64; in += v.bytes {
			g.p("VMOVUPS %d(SI), %s", at+in, v.reg((at+in)/v.bytes%16))
		}
	}
	g.p("ADDQ $512, SI")
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// writeLimits writes them to files of their own.
func writeLimits() {
	g := &generator{}
	g.code.WriteString("// Code generated by asm/gen.go. DO NOT EDIT.\n\n#include \"textflag.h\"\n")
	g.decl.WriteString("// Code generated by asm/gen.go. DO NOT EDIT.\n\npackage cpu\n")
	g.limits()
	write("limits_kernels_amd64.s", g.code.String())
	writeGo("limits_kernels_amd64.go", g.decl.String())
}
