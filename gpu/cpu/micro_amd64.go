package cpu

//go:generate go run ./asm

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
	"golang.org/x/sys/cpu"
)

// fastMicro is the set for an instruction set, or nil where the processor lacks it.
func fastMicro(isa ISA) *micro {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return nil
	case isa == AVX2:
		return avx2Micro()
	case isa == AVXVNNI && x.HasAVXVNNI:
		if m := avxVNNIMicro(); m.quant.agrees() {
			return m
		}
	case isa == AVX512 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ &&
		x.HasAVX512VNNI:
		return avx512Micro()
	case isa == AMX:
		return tileMicro()
	}
	return nil
}

func avx2Micro() *micro {
	return &micro{
		name:          AVX2,
		tall:          6,
		tiles:         tilesAVX2,
		wide:          [tileKinds]tileKernel{wideF32AVX2, wideF16AVX2, wideBF16AVX2},
		sweep:         sweepAVX2,
		sumSquares:    sumSquaresFast,
		scaleWeighted: scaleWeightedFast,
		scaleRow:      scaleRowFast,
		softmax:       softmaxAVX2,
		gates: [...]func(dst, gate, up []float32){
			gpu.SiLU:     gateFast(8, gateSiLUAVX2, gateSiLU),
			gpu.GELUTanh: gateFast(8, gateGELUAVX2, gateGELU),
		},
		rotate: rotateFast,
		narrow: [...]func(dst []uint16, src []float32){
			gpu.F16: narrowHalfFast, gpu.BF16: narrowBfloat},
		fetch:      fetch,
		widenPanel: widenPanelAVX2,
		widenRow:   widenRowAVX2,
		quant:      avx2QuantMicro(),
		tdp:        avx2TDPMicro(),
	}
}

func avx2QuantMicro() quantMicro {
	return quantMicro{tall: 2, tiles: eachPanel(&quantAVX2), smallTall: 3,
		small: eachPanel(&quantSmallAVX2), unpack: unpackAVX2, magnitudes: true,
		quantise: quantiseAVX2, rows: quantRowsAVX2, few: 16,
		floats: [...]func(*[superLength][panelRows]float32, *floatCall){floatsWholeAVX2,
			floatsWholeAVX2, floatsLeastAVX2, floatsHalfAVX2}}
}

// avxVNNIMicro is the set for processors that have the dot product of four bytes without AVX-512.
func avxVNNIMicro() *micro {
	m := avx2Micro()
	m.name = AVXVNNI
	q := &m.quant
	q.tall, q.tiles, q.magnitudes = 3, eachPanel(&quantAVXVNNI), false
	q.small, q.smallTall = quantTable{}, 0
	q.unpack[gpu.Q8_0] = unpackQ8_0AVXVNNI
	q.rows, q.few = quantRowsAVXVNNI, 16
	return m
}

// eachPanel makes kernels for a pair of panels of those for one.
func eachPanel(table *quantTable) (pairs quantTable) {
	for kind := range table {
		for rows, one := range table[kind] {
			if one == nil {
				continue
			}
			pairs[kind][rows] = func(t *quantTile) {
				first := *t
				one(t)
				*t = first
				t.q = unsafe.Add(t.q, t.qPanel)
				t.s, t.m = unsafe.Add(t.s, t.sPanel), unsafe.Add(t.m, t.sPanel)
				t.c, t.init = unsafe.Add(t.c, panelRows*4), unsafe.Add(t.init, panelRows*4)
				one(t)
			}
		}
	}
	return pairs
}

func avx512Micro() *micro {
	m := avx2Micro()
	m.name, m.tall = AVX512, tileRows
	m.tiles, m.pairs = tilesAVX512, pairsAVX512
	m.sweep = sweepAVX512
	m.softmax = softmaxAVX512
	m.widenPanel, m.widenRow = widenPanelAVX512, widenRowAVX512
	m.gates = [...]func(dst, gate, up []float32){
		gpu.SiLU:     gateFast(16, gateSiLUAVX512, gateSiLU),
		gpu.GELUTanh: gateFast(16, gateGELUAVX512, gateGELU),
	}
	m.tiles.complete(m.tall)
	m.pairs.complete(m.tall)
	m.quant = quantMicro{tall: quantRows, tiles: quantAVX512, unpack: unpackAVX512,
		quantise: quantiseAVX2, rows: quantRowsAVX512, few: 32,
		floats: [...]func(*[superLength][panelRows]float32, *floatCall){floatsWholeAVX512,
			floatsWholeAVX512, floatsLeastAVX512, floatsHalfAVX512}}
	m.tdp = tdpMicro{tall: tdpRows, tiles: tdpTilesAVX512, widen: tdpWidenersAVX512,
		wide: [...]func(*tdpTile){gpu.F32: tdpWideF32, gpu.F16: tdpWideF16,
			gpu.BF16: tdpWideBF16},
		widePanels: [...]int{gpu.F32: 1, gpu.F16: 2, gpu.BF16: 2},
		split:      splitFast(16, tdpSplitAVX512)}
	m.wide = [tileKinds]tileKernel{wideF32AVX512, wideF16AVX512, wideBF16AVX512}
	return m
}

// fastDots are the products of pairs that this processor has beside AVX-512, or nil.
func fastDots() *dotMicro {
	if !cpu.X86.HasAVX512BF16 {
		return nil
	}
	return &dotMicro{tiles: tileDots, pairs: pairDots, wide: wideDot, round: roundPairsFast}
}

// roundPairsFast gives the assembly whole vectors.
func roundPairsFast(c *pairCall) {
	rest := *c
	if c.n &^= 15; c.n > 0 {
		roundPairsAVX512(c)
	}
	if rest.n -= c.n; rest.n == 0 {
		return // there is nothing behind that an address could be of
	}
	rest.from, rest.to = unsafe.Add(rest.from, 4*c.n), unsafe.Add(rest.to, 2*c.n)
	roundPairsGo(&rest)
}

func avx2TDPMicro() tdpMicro {
	m := tdpMicro{tall: 6, widen: tdpWidenersAVX2, split: splitFast(8, tdpSplitAVX2)}
	for rows := 1; rows <= m.tall; rows++ {
		m.tiles[rows] = func(t *tdpTile) {
			const half = panelRows / 2 * 4
			first := *t
			tdpTilesAVX2[rows](t)
			*t = first
			t.w, t.c = unsafe.Add(t.w, half), unsafe.Add(t.c, half)
			t.init = unsafe.Add(t.init, half)
			tdpTilesAVX2[rows](t)
		}
	}
	return m
}

// splitFast gives the assembly whole vectors.
func splitFast(lanes int, vector func(*tdpSplit)) func(*tdpSplit) {
	return func(c *tdpSplit) {
		rest := *c
		if c.n &^= lanes - 1; c.n > 0 {
			vector(c)
		}
		if rest.n -= c.n; rest.n == 0 {
			return // there is nothing behind that an address could be of
		}
		rest.from, rest.to = unsafe.Add(rest.from, 4*c.n), unsafe.Add(rest.to, 4*c.n)
		tdpSplitGo(&rest)
	}
}

// The fast functions give the assembly whole vectors and plain Go the rest: the bits are the same.

func sumSquaresFast(lanes *[normLanes]float64, x []float32) {
	n := len(x) &^ (normLanes - 1)
	if n > 0 {
		sumSquaresAVX2(lanes, unsafe.SliceData(x), n)
	}
	sumSquares(lanes, x[n:])
}

func scaleWeightedFast(dst, x, weight []float32, n norm) {
	whole := len(x) &^ 7
	if whole > 0 {
		f := scaleWeightedAVX2
		if n.accumulate {
			f = addWeightedAVX2
		}
		f(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(weight),
			whole, n.inverse, n.offset)
	}
	scaleWeighted(dst[whole:], x[whole:], weight[whole:], n)
}

func scaleRowFast(x []float32, f float32) {
	whole := len(x) &^ 7
	if whole > 0 {
		scaleRowAVX2(unsafe.SliceData(x), whole, f)
	}
	scaleRow(x[whole:], f)
}

func gateFast(
	lanes int, vector func(dst, gate, up *float32, n int), rest func(dst, gate, up []float32),
) func(dst, gate, up []float32) {
	return func(dst, gate, up []float32) {
		whole := len(gate) &^ (lanes - 1)
		if whole > 0 {
			vector(unsafe.SliceData(dst), unsafe.SliceData(gate), unsafe.SliceData(up), whole)
		}
		rest(dst[whole:], gate[whole:], up[whole:])
	}
}

func rotateFast(low, high, cos, sin []float32) {
	whole := len(low) &^ 7
	if whole > 0 {
		rotateAVX2(unsafe.SliceData(low), unsafe.SliceData(high),
			unsafe.SliceData(cos), unsafe.SliceData(sin), whole)
	}
	rotate(low[whole:], high[whole:], cos[whole:], sin[whole:])
}

func narrowHalfFast(dst []uint16, src []float32) {
	whole := len(dst) &^ 7
	if whole > 0 {
		narrowHalfAVX2(unsafe.SliceData(dst), unsafe.SliceData(src), whole)
	}
	narrowHalf(dst[whole:], src[whole:])
}
