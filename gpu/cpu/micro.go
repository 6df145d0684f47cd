package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// panelRows is how many output rows of a weight lie side by side in a panel [Cols][panelRows].
const panelRows = 16

// tileRows is the most rows of activations any tile kernel takes in one call.
const tileRows = 14

// widePanels is how many panels the one-row kernel takes at once, pairPanels the broad tile kernel.
const (
	widePanels = 4
	pairPanels = 2
)

// tile is one call of a tile kernel: for each of its rows r and columns j, c[r][j] = init[r][j] + Σ
// a[r][k]·b[k][j], a chain of FMAs with k ascending. Distances are in bytes; asm/gen.go knows the
// offsets of the fields.
type tile struct {
	k     int
	a     unsafe.Pointer // float32
	lda   uintptr        // from row to row of a
	b     unsafe.Pointer // panelRows weights a step
	ldb   uintptr        // from step to step of b
	panel uintptr        // from panel to panel, for the wide and the pair kernels
	c     unsafe.Pointer // float32
	ldc   uintptr
	init  unsafe.Pointer // float32: c itself to accumulate, a bias with ldi 0, or zeros
	ldi   uintptr
	rest  int      // how many stretches of b follow the first
	next  *stretch // the first of those; kernels count both down and up
	shift uintptr  // of the stretches that follow

	// The processor's mode: before the call, which the kernel keeps here, and flushMode where
	// subnormals are to be taken for zeros, else 0. Kernels for BF16 alone look.
	mode [2]uint32
}

// stretch is the next k steps of b, where they do not follow the ones before in memory.
type stretch struct {
	b unsafe.Pointer
	k int
}

// softmaxCall is one call of softmax: softmaxStep of lines of scores, which lie scoreStride apart,
// on the state of as many lines. asm/softmax512.go knows the offsets of the fields.
type softmaxCall struct {
	scores     *[attentionBlock]float32
	lines      int
	top, total *float32 // those of the lines
	scale      float32
	_          [3 * softmaxLines]float32 // the kernel's: corrections and sums

	output *float32 // what was summed up so far, of line after line: it takes the new scale
	width  int      // of a line of it, a multiple of panelRows

	powers *softPowers // the kernel's
}

// softPowers are what is to be added to the exponents of weights, line by line.
type softPowers [softmaxLines][attentionBlock]float32

// softmaxLines is the most lines of one call. A micro set takes as many as its tiles are tall.
const softmaxLines = 16

// softmaxGo is softmax in plain Go.
func softmaxGo(c *softmaxCall) {
	tops, totals := unsafe.Slice(c.top, c.lines), unsafe.Slice(c.total, c.lines)
	outputs := unsafe.Slice(c.output, c.lines*c.width)
	for i := range c.lines {
		scores := unsafe.Add(unsafe.Pointer(c.scores), i*scoreStride*4)
		line := softLine{tops[i], totals[i]}
		correction := softmaxStep((*[attentionBlock]float32)(scores), c.scale, &line)
		tops[i], totals[i] = line.top, line.total
		scaleRow(outputs[i*c.width:][:c.width], correction)
	}
}

// tileKernel computes a tile of as many rows and panels as it was made for.
type tileKernel func(*tile)

// plainTypes counts the types that are not quantised; they come first.
const plainTypes = gpu.BF16 + 1

// tileKind is what a tile kernel multiplies: weights of a type that is not quantised by float32, or
// pairs of bfloat16 by such pairs.
type tileKind int

const (
	kindPairs = tileKind(plainTypes)
	tileKinds = kindPairs + 1
)

// tileTable is kernels by kind and rows; nil where there is none.
type tileTable [tileKinds][tileRows + 1]tileKernel

// micro is a set of inner loops. All sets give the same bits.
type micro struct {
	name          ISA
	tall          int                      // the rows that tiles are best cut into
	tiles         tileTable                // one panel, every height up to tall
	pairs         tileTable                // pairPanels panels; empty where one panel is as good
	sweep         [plainTypes]func(*sweep) // of tall rows; nil where there are none
	wide          [tileKinds]tileKernel    // one row, widePanels panels
	sumSquares    func(lanes *[normLanes]float64, x []float32)
	scaleWeighted func(dst, x, weight []float32, n norm)
	scaleRow      func(x []float32, f float32)
	softmax       func(*softmaxCall)
	gates         [gpu.GELUTanh + 1]func(dst, gate, up []float32)
	rotate        func(low, high, cos, sin []float32)
	narrow        [plainTypes]func(dst []uint16, src []float32) // rounds len(dst) numbers
	roundPairs    func(*pairCall)                               // nil without tiles of kindPairs
	fetch         func(from unsafe.Pointer, bytes int)          // will be read soon
	widenPanel    func(*widenCall)
	widenRow      func(*widenCall)
	quant         quantMicro
	tdp           tdpMicro
}

// goMicro is the set for every machine.
func goMicro() *micro {
	m := &micro{
		name:          Go,
		tall:          6,
		sumSquares:    sumSquares,
		scaleWeighted: scaleWeighted,
		scaleRow:      scaleRow,
		softmax:       softmaxGo,
		gates:         [...]func(dst, gate, up []float32){gateSiLU, gateGELU},
		rotate:        rotate,
		narrow:        [...]func(dst []uint16, src []float32){nil, narrowHalf, narrowBfloat},
		fetch:         func(unsafe.Pointer, int) {},
		widenPanel:    widenPanel,
		widenRow:      widenRow,
		quant:         goQuantMicro(),
		tdp:           goTDPMicro(),
	}
	for dtype, widen := range wideners {
		for rows := 1; rows <= m.tall; rows++ {
			m.tiles[dtype][rows] = func(t *tile) { tileGo(t, rows, 0, widen) }
		}
		m.wide[dtype] = func(t *tile) {
			for p := range uintptr(widePanels) {
				one := *t
				one.c = unsafe.Add(t.c, p*panelRows*4)
				one.init = unsafe.Add(t.init, p*panelRows*4)
				tileGo(&one, 1, p*t.panel, widen)
			}
		}
	}
	return m
}

// complete fills the heights that a table lacks, up to tall, with two kernels one after the other.
func (t *tileTable) complete(tall int) {
	for kind := range t {
		for rows := 1; rows <= tall; rows++ {
			if t[kind][rows] != nil || t[kind][1] == nil {
				continue
			}
			upper, lower := t[kind][rows-1], t[kind][1]
			t[kind][rows] = func(call *tile) {
				rest, above := *call, uintptr(rows-1)
				upper(call)
				rest.a = unsafe.Add(call.a, above*call.lda)
				rest.c = unsafe.Add(call.c, above*call.ldc)
				rest.init = unsafe.Add(call.init, above*call.ldi)
				lower(&rest)
			}
		}
	}
}

// lanes are the weights of one step of a panel.
type lanes [panelRows]float64

// wideners convert one step of a panel, by type.
var wideners = [plainTypes]func(unsafe.Pointer) lanes{widenF32, widenF16, widenBF16}

func widenF32(b unsafe.Pointer) (w lanes) {
	for j, v := range (*[panelRows]float32)(b) {
		w[j] = float64(v)
	}
	return w
}

func widenF16(b unsafe.Pointer) (w lanes) {
	for j, v := range (*[panelRows]uint16)(b) {
		w[j] = float64(halfToFloat(v))
	}
	return w
}

func widenBF16(b unsafe.Pointer) (w lanes) {
	for j, v := range (*[panelRows]uint16)(b) {
		w[j] = float64(bfloatToFloat(v))
	}
	return w
}

// tileGo is the tile kernel in plain Go, for the panel that lies so many bytes behind the first.
func tileGo(t *tile, rows int, shift uintptr, widen func(unsafe.Pointer) lanes) {
	var sums [tileRows][panelRows]float32
	for r := range rows {
		sums[r] = *(*[panelRows]float32)(unsafe.Add(t.init, uintptr(r)*t.ldi))
	}
	part := tilePart{t: t, rows: rows, widen: widen}
	part.add(&sums, stretch{unsafe.Add(t.b, shift), t.k})
	for _, s := range unsafe.Slice(t.next, t.rest) {
		part.add(&sums, stretch{unsafe.Add(s.b, t.shift+shift), s.k})
	}
	for r := range rows {
		*(*[panelRows]float32)(unsafe.Add(t.c, uintptr(r)*t.ldc)) = sums[r]
	}
}

// tilePart is a tile on its way through the stretches of b.
type tilePart struct {
	t     *tile
	rows  int
	at    uintptr // of the next step in a row of a
	widen func(unsafe.Pointer) lanes
}

// add goes through one stretch. The loop is fma32 written out, because a call an FMA would take
// longer than the FMA.
func (p *tilePart) add(sums *[tileRows][panelRows]float32, s stretch) {
	if p.t.mode[1] != 0 {
		p.addFlushed(sums, s)
		return
	}
	for k := range s.k {
		w := p.widen(unsafe.Add(s.b, uintptr(k)*p.t.ldb))
		for r := range p.rows {
			x := float64(*(*float32)(unsafe.Add(p.t.a, uintptr(r)*p.t.lda+p.at+uintptr(k)*4)))
			row := &sums[r]
			for j := range row {
				s := x*w[j] + float64(row[j])
				if delicate(s) {
					row[j] = fmaOdd(float32(x), float32(w[j]), row[j])
				} else {
					row[j] = float32(s)
				}
			}
		}
	}
	p.at += uintptr(s.k) * 4
}

// addFlushed is add with subnormals taken for zeros.
func (p *tilePart) addFlushed(sums *[tileRows][panelRows]float32, s stretch) {
	for k := range s.k {
		w := p.widen(unsafe.Add(s.b, uintptr(k)*p.t.ldb))
		for r := range p.rows {
			x := flush(*(*float32)(unsafe.Add(p.t.a, uintptr(r)*p.t.lda+p.at+uintptr(k)*4)))
			for j, sum := range sums[r] {
				sums[r][j] = fmaFlush(x, flush(float32(w[j])), flush(sum))
			}
		}
	}
	p.at += uintptr(s.k) * 4
}
