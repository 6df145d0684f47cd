package model_test

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// faulty is a device that is asked for something else than what the model asks for: what would come
// of a mistake in reading a file or in a family. Whatever an implementer gets wrong ends in these
// calls, and one loaded model serves for all mistakes.
type faulty struct {
	gpu.Device
	mistake mistake
}

// mistake changes calls before they are made. What is nil leaves them as they are.
type mistake struct {
	scale     func(float32) float32      // of embeddings
	norm      func(*gpu.NormArgs) bool   // false leaves the norm out
	product   func(*gpu.MatMulArgs)      // every matrix product
	rope      func(*gpu.RopeArgs)        // base, scaling
	pairs     func(head, from []float32) // another order of a head's numbers before they turn
	attention func(*gpu.AttentionArgs)   // windows, scale
	mixed     bool                       // query head h takes key head h mod KVHeads
	gate      func(x float64) float64    // another activation
	prompt    func([]int32) []int32      // other tokens
}

// Embed implements gpu.Device.
func (f *faulty) Embed(dst gpu.Buffer, table gpu.Matrix, tokens []int32, scale float32) error {
	if f.mistake.scale != nil {
		scale = f.mistake.scale(scale)
	}
	return f.Device.Embed(dst, table, tokens, scale)
}

// Norm implements gpu.Device.
func (f *faulty) Norm(a gpu.NormArgs) error {
	if f.mistake.norm != nil && !f.mistake.norm(&a) {
		return nil
	}
	return f.Device.Norm(a)
}

// MatMul implements gpu.Device.
func (f *faulty) MatMul(a gpu.MatMulArgs) error {
	if f.mistake.product != nil {
		f.mistake.product(&a)
	}
	return f.Device.MatMul(a)
}

// RopeAppend implements gpu.Device. Queries and keys in one other order have the same products.
func (f *faulty) RopeAppend(a gpu.RopeArgs) error {
	if f.mistake.rope != nil {
		f.mistake.rope(&a)
	}
	if f.mistake.pairs != nil {
		width := (a.Heads + 2*a.KVHeads) * a.HeadDim
		err := f.edit(a.QKV, len(a.Positions)*width, func(all []float32) {
			for row := range len(a.Positions) {
				for h := range a.Heads + a.KVHeads {
					head := all[row*width+h*a.HeadDim:][:a.HeadDim]
					f.mistake.pairs(head, append([]float32(nil), head...))
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return f.Device.RopeAppend(a)
}

// Attention implements gpu.Device.
func (f *faulty) Attention(a gpu.AttentionArgs) error {
	if f.mistake.attention != nil {
		f.mistake.attention(&a)
	}
	if !f.mistake.mixed {
		return f.Device.Attention(a)
	}
	rows := 0
	for _, s := range a.Sequences {
		rows = max(rows, s.FirstRow+s.Rows)
	}
	// Place p, which takes key head p/group, is given the query head that should take another.
	group := a.Heads / a.KVHeads
	head := func(p int) int { return p%group*a.KVHeads + p/group }
	move := func(b gpu.Buffer, width int, back bool) error {
		return f.edit(b, rows*width, func(all []float32) {
			for row := range rows {
				to := all[row*width:][:a.Heads*a.HeadDim]
				from := append([]float32(nil), to...)
				for p := range a.Heads {
					x, y := p, head(p)
					if back {
						x, y = y, x
					}
					copy(to[x*a.HeadDim:][:a.HeadDim], from[y*a.HeadDim:])
				}
			}
		})
	}
	if err := move(a.QKV, (a.Heads+2*a.KVHeads)*a.HeadDim, false); err != nil {
		return err
	}
	if err := f.Device.Attention(a); err != nil {
		return err
	}
	return move(a.Dst, a.Heads*a.HeadDim, true)
}

// GLU implements gpu.Device.
func (f *faulty) GLU(a gpu.GLUArgs) error {
	if f.mistake.gate == nil {
		return f.Device.GLU(a)
	}
	from, to := make([]float32, 2*a.Rows*a.Width), make([]float32, a.Rows*a.Width)
	if err := f.Read(from, a.GateUp, 0); err != nil {
		return err
	}
	for i := range to {
		row, at := i/a.Width, i%a.Width
		gate, up := from[2*row*a.Width+at], from[(2*row+1)*a.Width+at]
		to[i] = float32(f.mistake.gate(float64(gate))) * up
	}
	return f.Write(a.Dst, to)
}

// edit changes the first n numbers of a buffer.
func (f *faulty) edit(b gpu.Buffer, n int, change func([]float32)) error {
	all := make([]float32, n)
	if err := f.Read(all, b, 0); err != nil {
		return err
	}
	change(all)
	return f.Write(b, all)
}

// The mistakes, as an implementer makes them.

// turnHalves rotates the pairs (i, i+half) of a file that holds them side by side.
func turnHalves(head, from []float32) {
	for i := range len(head) / 2 {
		head[2*i], head[2*i+1] = from[i], from[i+len(head)/2]
	}
}

// turnNeighbours rotates the pairs (2i, 2i+1) of a file that holds halves.
func turnNeighbours(head, from []float32) {
	for i := range len(head) / 2 {
		head[i], head[i+len(head)/2] = from[2*i], from[2*i+1]
	}
}

// base gives all layers one base of the rotation.
func base(theta float64) func(*gpu.RopeArgs) {
	return func(a *gpu.RopeArgs) { a.Rope = schedule(theta, a.HeadDim) }
}

func schedule(theta float64, dims int) *gpu.Rope {
	rope := &gpu.Rope{Scale: 1}
	for i := range dims / 2 {
		rope.Freqs = append(rope.Freqs, math.Pow(theta, -2*float64(i)/float64(dims)))
	}
	return rope
}

// slides gives some layers the window and the fast rotation of Gemma 3, and others neither.
func slides(window int, local, global float64, which func(layer int) bool) mistake {
	return mistake{
		rope: func(a *gpu.RopeArgs) {
			theta := global
			if which(a.Layer) {
				theta = local
			}
			a.Rope = schedule(theta, a.HeadDim)
		},
		attention: func(a *gpu.AttentionArgs) {
			if a.Window = 0; which(a.Layer) {
				a.Window = window
			}
		},
	}
}

// windowOf changes the windows that are there.
func windowOf(width func(int) int) func(*gpu.AttentionArgs) {
	return func(a *gpu.AttentionArgs) {
		if a.Window > 0 {
			a.Window = width(a.Window)
		}
	}
}

func scaleOf(x float64) func(*gpu.AttentionArgs) {
	return func(a *gpu.AttentionArgs) { a.Scale = float32(x) }
}

func epsilon(x float32) func(*gpu.NormArgs) bool {
	return func(a *gpu.NormArgs) bool { a.Eps = x; return true }
}

// oneMore adds 1 to the weights of norms that have it already.
func oneMore(a *gpu.NormArgs) bool { a.WeightOffset++; return true }

// noHeadNorm leaves out the norms of queries and keys, which are those within longer rows.
func noHeadNorm(a *gpu.NormArgs) bool { return a.Stride == 0 }

// exactGELU is the one that GELUTanh comes near to.
func exactGELU(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }

// brain rounds a number to bfloat16.
func brain(x float32) float32 {
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}
