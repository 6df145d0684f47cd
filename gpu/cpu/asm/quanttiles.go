package main

import "fmt"

// quantRows512 are the rows of the tallest tiles with 8-bit activations on AVX-512.
const quantRows512 = 6

// quantTile512 writes the kernel of rows × 32 outputs on AVX-512. Z0…Z11 hold the integer sums of
// a block, for each row and panel, Z12…Z23 the chains. Z28 and Z29 hold the weights of four steps,
// later the scales; Z30 four activations in all lanes.
func (g *generator) quantTile512(kind string, rows int) {
	name := fmt.Sprintf("quant%sx%dAVX512", kind, rows)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of two panels with 8-bit activations.", rows), 8)
	g.p("MOVQ t+0(FP), AX")
	g.label("%s_tile", name)
	g.quantStart(rows)
	g.p("MOVQ %d(AX), BX", quantQPanel)
	g.p("ADDQ DI, BX")
	g.p("MOVQ %d(AX), R11", quantSPanel)
	g.p("MOVQ %d(AX), R14", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	for r := range rows {
		g.p("VMOVUPS (R14), Z%d", 12+2*r)
		g.p("VMOVUPS 64(R14), Z%d", 13+2*r)
		g.p("ADDQ CX, R14")
	}
	g.p("MOVQ %d(AX), CX", quantBlocks)
	g.label("%s_loop", name)
	halves := map[string]int{"Whole": 1, "Least": 1, "Half": 2}[kind]
	for h := range halves {
		for r := range rows {
			for p := range 2 {
				g.p("VPBROADCASTD %s, Z%d", metaAddress(r, metaStart+4*h), 2*r+p)
			}
		}
		for group := 8 / halves * h; group < 8/halves*(h+1); group++ {
			g.p("VMOVDQU64 %d(DI), Z28", 64*group)
			g.p("VMOVDQU64 %d(BX), Z29", 64*group)
			for r := range rows {
				g.p("VPBROADCASTD %s, Z30", quantAddress(r, 4*group))
				g.p("VPDPBUSD Z30, Z28, Z%d", 2*r)
				g.p("VPDPBUSD Z30, Z29, Z%d", 2*r+1)
			}
		}
		g.p("VMOVUPS %d(R10), Z28", 64*h)
		g.p("VMOVUPS %d(R10)(R11*1), Z29", 64*h)
		for r := range rows {
			g.p("VBROADCASTSS %s, Z30", metaAddress(r, metaScale))
			for p := range 2 {
				g.p("VMULPS Z30, Z%d, Z31", 28+p)
				g.p("VCVTDQ2PS Z%d, Z%d", 2*r+p, 2*r+p)
				g.p("VFMADD231PS Z31, Z%d, Z%d", 2*r+p, 12+2*r+p)
			}
		}
	}
	if kind == "Least" {
		g.p("VMOVUPS (R12), Z28")
		g.p("VMOVUPS (R12)(R11*1), Z29")
		for r := range rows {
			g.p("VBROADCASTSS %s, Z30", metaAddress(r, metaSum))
			g.p("VFMADD231PS Z28, Z30, Z%d", 12+2*r)
			g.p("VFMADD231PS Z29, Z30, Z%d", 13+2*r)
		}
		g.p("ADDQ $64, R12")
	}
	g.p("ADDQ $512, BX")
	g.quantNext(name, rows, halves)
	g.p("MOVQ %d(AX), R14", quantC)
	g.p("MOVQ %d(AX), CX", quantLDC)
	for r := range rows {
		g.p("VMOVUPS Z%d, (R14)", 12+2*r)
		g.p("VMOVUPS Z%d, 64(R14)", 13+2*r)
		g.p("ADDQ CX, R14")
	}
	g.quantNextTile(name, rows)
	g.p("VZEROUPPER")
	g.p("RET")
}

// quantStart loads what all quantTile kernels keep in registers: SI and R9 the activations of rows
// 0 and 3, R8 the distance of rows; R13, R15 and DX the same of their meta; DI the integers, R10
// the scales, R12 the least values.
func (g *generator) quantStart(rows int) {
	g.p("MOVQ %d(AX), SI", quantA)
	g.p("MOVQ %d(AX), R8", quantLDA)
	g.p("MOVQ %d(AX), R13", quantMeta)
	g.p("MOVQ %d(AX), DX", quantLDM)
	if rows > 3 {
		g.p("LEAQ (R8)(R8*2), R9")
		g.p("ADDQ SI, R9")
		g.p("LEAQ (DX)(DX*2), R15")
		g.p("ADDQ R13, R15")
	}
	g.p("MOVQ %d(AX), DI", quantQ)
	g.p("MOVQ %d(AX), R10", quantS)
	g.p("MOVQ %d(AX), R12", quantM)
}

// quantNext goes to the next block, or on.
func (g *generator) quantNext(name string, rows, halves int) {
	g.p("ADDQ $512, DI")
	g.p("ADDQ $%d, R10", 64*halves)
	g.p("ADDQ $32, SI")
	g.p("ADDQ $%d, R13", metaSize)
	if rows > 3 {
		g.p("ADDQ $32, R9")
		g.p("ADDQ $%d, R15", metaSize)
	}
	g.p("DECQ CX")
	g.p("JNZ %s_loop", name)
}

func quantAddress(r, offset int) string {
	return fmt.Sprintf("%d(%s)%s", offset, []string{"SI", "R9", "R11"}[r/3],
		[3]string{"", "(R8*1)", "(R8*2)"}[r%3])
}

func metaAddress(r, offset int) string {
	return fmt.Sprintf("%d(%s)%s", offset, []string{"R13", "R15", "R12"}[r/3],
		[3]string{"", "(DX*1)", "(DX*2)"}[r%3])
}

// quantSet is a set of kernels with 8-bit activations in registers of 32 bytes. Y0… hold the
// integer sums of a block, for each row and half of the panel, then follow the chains, the weights
// of four steps, and activations.
type quantSet struct {
	isa  string
	tall int // rows of the tallest tile
	vnni bool
	// small: weights are of 4 bits, so that a block's sums fit into 16 bits, see quantSmall256.
	small bool
}

var (
	quantAVX2      = quantSet{isa: "AVX2", tall: 2}
	quantSmallAVX2 = quantSet{isa: "SmallAVX2", tall: 3, small: true}
	quantAVXVNNI   = quantSet{isa: "AVXVNNI", tall: 3, vnni: true}
)

// kinds are those that the set has kernels for.
func (s quantSet) kinds() []string {
	switch {
	case s.small:
		return []string{"Whole", "Least"}
	case s.vnni:
		return []string{"Whole", "Least", "Half"}
	}
	return []string{"Byte", "Whole", "Least", "Half"}
}

func (s quantSet) chains() int      { return 2 * s.tall }
func (s quantSet) weights() int     { return 4 * s.tall }
func (s quantSet) activations() int { return 4*s.tall + 2 }

// quantTile256 writes the kernel of rows × 16 outputs of such a set. AVX2 alone has no dot product
// of four bytes. Its VPMADDUBSW adds two products of unsigned by signed bytes and saturates. Full
// bytes go in as magnitudes, and where they are negative, activations with all bits turned: that is
// a product of -a-1, and what it lacks the chunk has summed up. Bits are turned on every port of a
// processor, signs (VPSIGNB) on few. A sum lies between -2·128·128 = -2¹⁵ and 2·127·127. Smaller
// weights go in as they are, and several such sums still fit, see quantRuns.
func (g *generator) quantTile256(s quantSet, kind string, rows int) {
	name := fmt.Sprintf("quant%sx%d%s", kind, rows, s.isa)
	g.function(name, "(t *quantTile)",
		fmt.Sprintf("computes %d rows of one panel with 8-bit activations.", rows), 8)
	g.p("MOVQ t+0(FP), AX")
	g.label("%s_tile", name)
	g.quantStart(rows)
	g.p("MOVQ %d(AX), R14", quantInit)
	g.p("MOVQ %d(AX), CX", quantLDI)
	for i := range 2 * rows {
		g.p("VMOVUPS %d(R14)%s, Y%d", 32*(i%2), lines256[i/2], s.chains()+i)
	}
	g.p("MOVQ %d(AX), CX", quantBlocks)
	if kind == "Byte" {
		g.broadcast(ymm, "wordOne", 15)
	}
	g.label("%s_loop", name)
	halves := map[string]int{"Byte": 1, "Whole": 1, "Least": 1, "Half": 2}[kind]
	for h := range halves {
		for i := 0; i < 2*rows && kind != "Byte" && !s.small; i++ {
			g.p("VPBROADCASTD %s, Y%d", metaAddress(i/2, metaStart+4*h), i)
		}
		g.quantGroups256(s, kind, rows, 8/halves*h, 8/halves*(h+1))
		g.quantScale256(s, kind, rows, h)
	}
	if kind == "Least" || kind == "Byte" {
		g.p("ADDQ $64, R12")
	}
	g.quantNext(name, rows, halves)
	g.p("MOVQ %d(AX), R14", quantC)
	g.p("MOVQ %d(AX), CX", quantLDC)
	for i := range 2 * rows {
		g.p("VMOVUPS Y%d, %d(R14)%s", s.chains()+i, 32*(i%2), lines256[i/2])
	}
	g.quantNextTile(name, rows)
	g.p("VZEROUPPER")
	g.p("RET")
}

// lines256 are the rows of outputs, CX apart.
var lines256 = [...]string{"", "(CX*1)", "(CX*2)"}

// quantGroups256 adds groups [first, last) of a block to the integer sums.
func (g *generator) quantGroups256(s quantSet, kind string, rows, first, last int) {
	switch {
	case s.vnni:
		for group := first; group < last; group++ {
			g.quantDots256(s, rows, group)
		}
	case s.small:
		g.quantSmall256(s, rows)
	case kind == "Byte":
		for group := first; group < last; group++ {
			g.quantBytes256(rows, group)
		}
	default:
		for run := quantRuns[kind]; first < last; first += run {
			g.quantRun256(rows, first, run)
		}
	}
}

// quantDots256 adds four steps to the integer sums.
func (g *generator) quantDots256(s quantSet, rows, group int) {
	for p := range 2 {
		g.p("VMOVDQU %d(DI), Y%d", 64*group+32*p, s.weights()+p)
	}
	for r := range rows {
		g.p("VPBROADCASTD %s, Y%d", quantAddress(r, 4*group), s.activations())
		for p := range 2 {
			g.dotBytes(2*r+p, s.activations(), s.weights()+p)
		}
	}
}

// dotBytes writes VPDPBUSD on registers of 32 bytes, which adds four products of unsigned weights
// and signed activations. Go's assembler knows only the form of AVX-512, so this one, of AVX-VNNI,
// is written as bytes, as Intel's manual encodes it: VEX.256, map 0F38, W0, prefix 66.
func (g *generator) dotBytes(to, activations, weights int) {
	g.bytes([]int{0xc4, (1-to>>3)<<7 | 1<<6 | (1-activations>>3)<<5 | 2,
		(15-weights)<<3 | 1<<2 | 1, 0x50, 0xc0 | to&7<<3 | activations&7},
		fmt.Sprintf("VPDPBUSD Y%d, Y%d, Y%d", activations, weights, to))
}

// quantNextTile goes to the next tile, or on. Behind the last one the pointers stay where they
// are: behind the rows there may be no memory, and the garbage collector looks at them.
func (g *generator) quantNextTile(name string, rows int) {
	g.p("DECQ %d(AX)", quantTiles)
	g.p("JZ %s_end", name)
	for _, f := range [][2]int{{quantLDA, quantA}, {quantLDM, quantMeta}, {quantLDC, quantC},
		{quantLDI, quantInit}} {
		g.p("IMUL3Q $%d, %d(AX), CX", rows, f[0])
		g.p("ADDQ CX, %d(AX)", f[1])
	}
	g.p("JMP %s_tile", name)
	g.label("%s_end", name)
}

// quantSmall256 makes the integer sums of a block of 4-bit weights: all eight sums of VPMADDUBSW
// fit into 16 bits, because 8·2·15·127 is below 2¹⁵, so that runs need no registers of their own.
func (g *generator) quantSmall256(s quantSet, rows int) {
	spare := s.activations() + 1
	for group := range 8 {
		for p := range 2 {
			g.p("VMOVDQU %d(DI), Y%d", 64*group+32*p, s.weights()+p)
		}
		for r := range rows {
			g.p("VPBROADCASTD %s, Y%d", quantAddress(r, 4*group), s.activations())
			for p := range 2 {
				i, weights := 2*r+p, s.weights()+p
				if group == 0 {
					g.p("VPMADDUBSW Y%d, Y%d, Y%d", s.activations(), weights, i)
					continue
				}
				g.p("VPMADDUBSW Y%d, Y%d, Y%d", s.activations(), weights, spare)
				g.p("VPADDW Y%d, Y%d, Y%d", spare, i, i)
			}
		}
	}
	ones, start := s.weights(), s.weights()+1
	g.broadcast(ymm, "wordOne", ones)
	for i := range 2 * rows {
		if i%2 == 0 {
			g.p("VPBROADCASTD %s, Y%d", metaAddress(i/2, metaStart), start)
		}
		g.p("VPMADDWD Y%d, Y%d, Y%d", ones, i, i)
		g.p("VPADDD Y%d, Y%d, Y%d", start, i, i)
	}
}

// quantRuns are how many sums of VPMADDUBSW are added in 16 bits before they are widened:
// weights are below 32, or in "Half" below 64, and 4·2·31·127 and 2·2·63·127 are below 2¹⁵.
var quantRuns = map[string]int{"Whole": 4, "Least": 4, "Half": 2}

// quantRun256 adds the groups of a run to the integer sums.
func (g *generator) quantRun256(rows, first, run int) {
	for group := first; group < first+run; group++ {
		for p := range 2 {
			g.p("VMOVDQU %d(DI), Y%d", 64*group+32*p, 8+p)
		}
		for r := range rows {
			g.p("VPBROADCASTD %s, Y10", quantAddress(r, 4*group))
			for p := range 2 {
				if group == first {
					g.p("VPMADDUBSW Y10, Y%d, Y%d", 8+p, 11+2*r+p)
					continue
				}
				g.p("VPMADDUBSW Y10, Y%d, Y15", 8+p)
				g.p("VPADDW Y15, Y%d, Y%d", 11+2*r+p, 11+2*r+p)
			}
		}
	}
	g.broadcast(ymm, "wordOne", 15)
	for i := range 2 * rows {
		g.p("VPMADDWD Y15, Y%d, Y%d", 11+i, 11+i)
		g.p("VPADDD Y%d, Y%d, Y%d", 11+i, i, i)
	}
}

// quantBytes256 adds four steps of full bytes to the integer sums, in an order that keeps what can
// run beside one another together.
func (g *generator) quantBytes256(rows, group int) {
	for p := range 2 {
		g.p("VMOVDQU %d(DI), Y%d", 64*group+32*p, 8+p)
	}
	for r := range rows {
		g.p("VPBROADCASTD %s, Y%d", quantAddress(r, 4*group), 10+2*r)
		for p := 1; p >= 0; p-- { // the first takes the place of the activations
			at := chunkNegative + 64*group + 32*p
			g.p("VPXOR %d(DI), Y%d, Y%d", at, 10+2*r, 10+2*r+p)
		}
		for p := range 2 {
			g.p("VPMADDUBSW Y%d, Y%d, Y%d", 10+2*r+p, 8+p, 10+2*r+p)
		}
	}
	for i := range 2 * rows {
		to := 10 + i
		if group == 0 {
			to = i
		}
		g.p("VPMADDWD Y15, Y%d, Y%d", 10+i, to)
	}
	for i := range 2 * rows {
		if group == 0 {
			g.p("VPADDD %d(R12), Y%d, Y%d", 32*(i%2), i, i)
		} else {
			g.p("VPADDD Y%d, Y%d, Y%d", 10+i, i, i)
		}
	}
}

// quantScale256 adds the scaled sums to the chains, and what the least values add.
func (g *generator) quantScale256(s quantSet, kind string, rows, half int) {
	scales, product := s.weights(), s.weights()+s.tall
	for r := range rows {
		g.p("VBROADCASTSS %s, Y%d", metaAddress(r, metaScale), scales+r)
	}
	for i := range 2 * rows {
		g.p("VMULPS %d(R10), Y%d, Y%d", 64*half+32*(i%2), scales+i/2, product)
		g.p("VCVTDQ2PS Y%d, Y%d", i, i)
		g.p("VFMADD231PS Y%d, Y%d, Y%d", product, i, s.chains()+i)
	}
	if kind != "Least" {
		return
	}
	for r := range rows {
		g.p("VBROADCASTSS %s, Y%d", metaAddress(r, metaSum), scales+r)
	}
	for i := range 2 * rows {
		g.p("VFMADD231PS %d(R12), Y%d, Y%d", 32*(i%2), scales+i/2, s.chains()+i)
	}
}
