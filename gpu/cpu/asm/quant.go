package main

import (
	"fmt"
	"slices"
	"strings"
)

// Offsets of the fields of types quantTile, quantMeta, unpackCall, chunk, floatCall and
// quantiseCall in micro_quant.go.
const (
	quantBlocks, quantA, quantLDA, quantMeta, quantLDM = 0, 8, 16, 24, 32
	quantQ, quantQPanel, quantS, quantM, quantSPanel   = 40, 48, 56, 64, 72
	quantC, quantLDC, quantInit, quantLDI, quantTiles  = 80, 88, 96, 104, 112
	metaScale, metaSum, metaStart, metaSize            = 0, 4, 8, 16
	unpackBlocks, unpackQ, unpackScales, unpackTo      = 0, 8, 16, 24
	unpackNext                                         = 32
	chunkScale, chunkLeast, chunkNegative, chunkLack   = 512 * 18, 640 * 18, 704 * 18, 1216 * 18
	floatsBlocks, floatsOffset, floatsQ, floatsFrom    = 0, 8, 16, 24
)

// vector is a width of registers: "Y" of 32 bytes or "Z" of 64.
type vector struct {
	letter string
	bytes  int
	isa    string
}

var (
	ymm = vector{"Y", 32, "AVX2"}
	zmm = vector{"Z", 64, "AVX512"}

	// ymmBytes is ymm for what takes full bytes as they are stored.
	ymmBytes = vector{"Y", 32, "AVXVNNI"}
)

func (v vector) reg(i int) string { return fmt.Sprintf("%s%d", v.letter, i) }

// integer is the name of a whole-register operation on integers: some carry their element's size in
// their EVEX form.
func (v vector) integer(op string) string {
	wide := map[string]string{"VPAND": "VPANDD", "VPOR": "VPORD", "VPXOR": "VPXORD",
		"VMOVDQU": "VMOVDQU64"}
	if name, ok := wide[op]; ok && v == zmm {
		return name
	}
	return op
}

// formats are the quantised types as the unpack kernels see them: the bits of an integer, the bytes
// of 32 steps, and the bytes of the scales of one stored block of 16 rows.
var formats = []struct {
	name                          string
	bits, quantBytes, scaleBytes  int
	least                         bool
	scaleFactors, factorsPerBlock int // of formats of 256
}{
	{"Q8_0", 8, 512, 32, false, 0, 0},
	{"Q4_0", 4, 256, 32, false, 0, 0},
	{"Q4_1", 4, 256, 64, true, 0, 0},
	{"Q5_0", 5, 320, 32, false, 0, 0},
	{"Q5_1", 5, 320, 64, true, 0, 0},
	{"Q4_K", 4, 256, 320, true, 8, 1},
	{"Q5_K", 5, 320, 320, true, 8, 1},
	{"Q6_K", 6, 384, 288, false, 16, 2},
}

func (g *generator) quant() {
	g.unpack(ymmBytes, 0)
	for _, v := range []vector{ymm, zmm} {
		for i := range formats {
			g.unpack(v, i)
		}
		for _, kind := range []string{"Whole", "Least", "Half"} {
			g.floats(v, kind)
		}
	}
	for _, kind := range []string{"Whole", "Least", "Half"} {
		for rows := 1; rows <= quantRows512; rows++ {
			g.quantTile512(kind, rows)
		}
	}
	for _, s := range []quantSet{quantAVX2, quantSmallAVX2, quantAVXVNNI} {
		for _, kind := range s.kinds() {
			for rows := 1; rows <= s.tall; rows++ {
				g.quantTile256(s, kind, rows)
			}
		}
	}
	for i := range formats {
		for _, rows := range quantHeights512 {
			g.quantRows(i, rows)
		}
		for _, rows := range quantHeights256 {
			g.quantRows256(quantAVX2, i, rows)
			g.quantRows256(quantAVXVNNI, i, rows)
		}
	}
	g.quantise()
}

// unpack writes the kernel that brings a chunk of a packed panel into the form of type chunk.
func (g *generator) unpack(v vector, format int) {
	f := formats[format]
	name := fmt.Sprintf("unpack%s%s", f.name, v.isa)
	g.function(name, "(c *unpackCall)", "unpacks a chunk of a "+f.name+" panel.", 8)
	g.p("MOVQ c+0(FP), AX")
	g.p("MOVQ %d(AX), CX", unpackBlocks)
	g.p("MOVQ %d(AX), SI", unpackQ)
	g.p("MOVQ %d(AX), R8", unpackScales)
	g.p("MOVQ %d(AX), DI", unpackTo)
	g.p("MOVQ %d(AX), R12", unpackNext)
	g.p("LEAQ %d(DI), R9", chunkScale)
	g.p("LEAQ %d(DI), R10", chunkLeast)
	g.broadcast(v, "byteLow4", 15)
	g.broadcast(v, map[int]string{5: "byteBit4", 6: "byteBits45"}[f.bits], 14)
	if f.scaleFactors > 0 {
		g.superScales(v, format)
	}
	if f.bits == 8 && v == ymm {
		g.p("LEAQ %d(DI), R11", chunkLack)
	}
	g.label("%s_loop", name)
	for at := 0; at < f.quantBytes; at += 64 { // rows pass over the chunk before they are needed
		g.p("PREFETCHT1 %d(SI)(R12*1)", at)
	}
	switch {
	case f.bits < 8:
		for at := 0; at < 64; at += v.bytes {
			g.unpackVector(v, f.bits, at)
		}
	case v == ymm:
		g.takeSigns()
	}
	g.p("ADDQ $%d, SI", f.quantBytes)
	g.p("ADDQ $512, DI")
	if f.scaleFactors == 0 {
		for at := 0; at < 64; at += v.bytes {
			g.p("VCVTPH2PS %d(R8), %s", at/2, v.reg(0))
			g.p("VMOVUPS %s, %d(R9)", v.reg(0), at)
			if f.least {
				g.p("VCVTPH2PS %d(R8), %s", 32+at/2, v.reg(0))
				g.p("VMOVUPS %s, %d(R10)", v.reg(0), at)
			}
		}
		g.p("ADDQ $%d, R8", f.scaleBytes)
		g.p("ADDQ $64, R9")
		if f.least {
			g.p("ADDQ $64, R10")
		}
	}
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// takeSigns writes the magnitudes of a block's bytes, where they are negative, and the sums of the
// magnitudes there, one half of the panel after the other.
func (g *generator) takeSigns() {
	g.broadcast(ymm, "byteSign", 13)
	g.broadcast(ymm, "byteOne", 12)
	g.broadcast(ymm, "wordOne", 11)
	for half := 0; half < 64; half += 32 {
		g.p("VPXOR Y14, Y14, Y14")
		g.p("VPXOR Y4, Y4, Y4")
		for at := half; at < 512; at += 64 {
			g.p("VPXOR %d(SI), Y13, Y0", at)
			g.p("VPABSB Y0, Y1")
			g.p("VPCMPGTB Y0, Y14, Y2") // 0 is greater
			g.p("VMOVDQU Y1, %d(DI)", at)
			g.p("VMOVDQU Y2, %d(DI)", chunkNegative+at)
			g.p("VPAND Y2, Y1, Y1")
			g.p("VPMADDUBSW Y12, Y1, Y1")
			g.p("VPADDW Y1, Y4, Y4")
		}
		g.p("VPMADDWD Y11, Y4, Y4")
		g.p("VMOVDQU Y4, %d(R11)", half)
	}
	g.p("ADDQ $64, R11")
}

// broadcast loads a constant of 32 bits into all lanes; without a name it does nothing.
func (g *generator) broadcast(v vector, name string, register int) {
	if name != "" {
		g.p("VPBROADCASTD %s, %s", constant(name), v.reg(register))
	}
}

// unpackVector writes the eight groups of a block, of each the vector at a byte of its 64.
func (g *generator) unpackVector(v vector, bits, at int) {
	for i := range 4 {
		g.p("%s %d(SI), %s", v.integer("VMOVDQU"), 64*i+at, v.reg(0))
		g.p("VPSRLW $4, %s, %s", v.reg(0), v.reg(1))
		for half := range 2 {
			g.p("%s %s, %s, %s", v.integer("VPAND"), v.reg(15), v.reg(half), v.reg(half))
			g.highBits(v, bits, i+4*half, at)
			g.p("%s %s, %d(DI)", v.integer("VMOVDQU"), v.reg(half), 64*(i+4*half)+at)
		}
	}
}

// highBits adds what lies above the lower four bits of a group to its register, 0 or 1.
func (g *generator) highBits(v vector, bits, group, at int) {
	from, shift := 256, 4-group
	switch bits {
	case 4:
		return
	case 6:
		from, shift = 256+64*(group/4), 4-2*(group%4)
	}
	g.p("%s %d(SI), %s", v.integer("VMOVDQU"), from+at, v.reg(2))
	if shift > 0 {
		g.p("VPSLLW $%d, %s, %s", shift, v.reg(2), v.reg(2))
	} else if shift < 0 {
		g.p("VPSRLW $%d, %s, %s", -shift, v.reg(2), v.reg(2))
	}
	g.p("%s %s, %s, %s", v.integer("VPAND"), v.reg(14), v.reg(2), v.reg(2))
	g.p("%s %s, %s, %s", v.integer("VPOR"), v.reg(2), v.reg(group/4), v.reg(group/4))
}

// superScales writes the scales and least values of a stored block of 256: of these formats that is
// a whole chunk.
func (g *generator) superScales(v vector, format int) {
	f := formats[format]
	head, extend := 32, "VPMOVSXBD"
	if f.least {
		head, extend = 64, "VPMOVZXBD"
	}
	for at := 0; at < 64; at += v.bytes {
		g.p("VCVTPH2PS %d(R8), %s", at/2, v.reg(10))
		for i := range f.scaleFactors {
			g.p("%s %d(R8), %s", extend, head+16*i+at/4, v.reg(0))
			g.p("VCVTDQ2PS %s, %s", v.reg(0), v.reg(0))
			g.p("VMULPS %s, %s, %s", v.reg(10), v.reg(0), v.reg(0))
			g.p("VMOVUPS %s, %d(R9)", v.reg(0), 64*i+at)
		}
		if !f.least {
			continue
		}
		g.broadcast(v, "sign", 11)
		g.p("VCVTPH2PS %d(R8), %s", 32+at/2, v.reg(10))
		g.p("%s %s, %s, %s", v.integer("VPXOR"), v.reg(11), v.reg(10), v.reg(10))
		for i := range 8 {
			g.p("VPMOVZXBD %d(R8), %s", head+16*f.scaleFactors+16*i+at/4, v.reg(0))
			g.p("VCVTDQ2PS %s, %s", v.reg(0), v.reg(0))
			g.p("VMULPS %s, %s, %s", v.reg(10), v.reg(0), v.reg(0))
			g.p("VMOVUPS %s, %d(R10)", v.reg(0), 64*i+at)
		}
	}
}

// floats writes the kernel that turns a chunk into a panel of float32.
func (g *generator) floats(v vector, kind string) {
	name := fmt.Sprintf("floats%s%s", kind, v.isa)
	g.function(name, "(to *[superLength][panelRows]float32, c *floatCall)",
		"writes the values of a chunk's numbers.", 16)
	g.p("MOVQ to+0(FP), DI")
	g.p("MOVQ c+8(FP), AX")
	g.p("MOVQ %d(AX), CX", floatsBlocks)
	g.p("MOVQ %d(AX), SI", floatsQ)
	g.p("MOVQ %d(AX), R9", floatsFrom)
	g.p("LEAQ %d(R9), R10", chunkLeast)
	g.p("ADDQ $%d, R9", chunkScale)
	g.p("VPBROADCASTD %d(AX), %s", floatsOffset, v.reg(13))
	g.broadcast(v, "laneLow8", 15)
	g.label("%s_loop", name)
	for at := 0; at < 64; at += v.bytes {
		for group := range 8 {
			if group == 0 || kind == "Half" && group == 4 {
				g.p("VMOVUPS %d(R9), %s", 64*(group/4)+at, v.reg(10))
			}
			if group == 0 && kind == "Least" {
				g.p("VMOVUPS %d(R10), %s", at, v.reg(11))
			}
			g.p("%s %d(SI), %s", v.integer("VMOVDQU"), 64*group+at, v.reg(0))
			for i := range 4 {
				g.p("VPSRLD $%d, %s, %s", 8*i, v.reg(0), v.reg(1))
				g.p("%s %s, %s, %s", v.integer("VPAND"), v.reg(15), v.reg(1), v.reg(1))
				g.p("VPSUBD %s, %s, %s", v.reg(13), v.reg(1), v.reg(1))
				g.p("VCVTDQ2PS %s, %s", v.reg(1), v.reg(1))
				g.p("VMULPS %s, %s, %s", v.reg(10), v.reg(1), v.reg(1))
				if kind == "Least" {
					g.p("VADDPS %s, %s, %s", v.reg(11), v.reg(1), v.reg(1))
				}
				g.p("VMOVUPS %s, %d(DI)", v.reg(1), 64*(4*group+i)+at)
			}
		}
	}
	g.p("ADDQ $512, SI")
	g.p("ADDQ $%d, R9", map[string]int{"Whole": 64, "Least": 64, "Half": 128}[kind])
	g.p("ADDQ $64, R10")
	g.p("ADDQ $2048, DI")
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
	g.p("VZEROUPPER")
	g.p("RET")
}

// quantTables lists the kernels for quantised weights.
func (g *generator) quantTables(to *strings.Builder) {
	for _, s := range []quantSet{quantAVX2, quantSmallAVX2, quantAVXVNNI} {
		g.quantTable(to, s.isa, s.tall, s.kinds())
	}
	g.quantTable(to, "AVX512", quantRows512, quantAVXVNNI.kinds())
	for _, v := range []vector{ymm, zmm} {
		fmt.Fprintf(to, "\n// unpack%s are kernels by type.\n", v.isa)
		fmt.Fprintf(to, "var unpack%s = [gpu.DTypes]func(*unpackCall){\n", v.isa)
		for _, f := range formats {
			fmt.Fprintf(to, "gpu.%s: unpack%s%s,\n", f.name, f.name, v.isa)
		}
		fmt.Fprintf(to, "}\n")
	}
	g.quantRowTable(to, "AVX2", quantHeights256)
	g.quantRowTable(to, "AVXVNNI", quantHeights256)
	g.quantRowTable(to, "AVX512", quantHeights512)
}

// quantTable lists the kernels for tiles of some kinds. Where there are none for magnitudes, full
// bytes are like others.
func (g *generator) quantTable(to *strings.Builder, isa string, tall int, kinds []string) {
	fmt.Fprintf(to, "\n// quant%s are kernels by kind and rows.\n", isa)
	fmt.Fprintf(to, "var quant%s = quantTable{\n", isa)
	for _, kind := range []string{"Byte", "Whole", "Least", "Half"} {
		kernels := kind
		if kind == "Byte" && !slices.Contains(kinds, kind) {
			kernels = "Whole"
		}
		if !slices.Contains(kinds, kernels) {
			continue
		}
		fmt.Fprintf(to, "kind%s: {\n", kind)
		for r := 1; r <= tall; r++ {
			fmt.Fprintf(to, "%d: quant%sx%d%s,\n", r, kernels, r, isa)
		}
		fmt.Fprintf(to, "},\n")
	}
	fmt.Fprintf(to, "}\n")
}

// quantRowTable lists the kernels that read packed panels.
func (g *generator) quantRowTable(to *strings.Builder, isa string, heights []int) {
	fmt.Fprintf(to, "\n// quantRows%s are kernels by type and rows.\n", isa)
	fmt.Fprintf(to, "var quantRows%s = quantRowTable{\n", isa)
	for _, f := range formats {
		fmt.Fprintf(to, "gpu.%s: {\n", f.name)
		for _, rows := range heights {
			fmt.Fprintf(to, "%d: quantRows%sx%d%s,\n", rows, f.name, rows, isa)
		}
		fmt.Fprintf(to, "},\n")
	}
	fmt.Fprintf(to, "}\n")
}
