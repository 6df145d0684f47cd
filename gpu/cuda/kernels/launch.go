package kernels

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// maxArgs is the most parameters of a kernel.
const maxArgs = 14

// Address is a device address.
type Address = uint64

// Launch is one kernel over a grid.
type Launch struct {
	Kernel ID
	Grid   [3]uint32
	Block  [3]uint32
	Shared uint32 // bytes of dynamic shared memory
	cells  [maxArgs]uint64
	count  int
}

// Empty says that there is nothing to do: the driver refuses such a launch.
func (l *Launch) Empty() bool { return l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 }

// Args are the parameters, each in an 8-byte cell, little-endian from its first byte.
func (l *Launch) Args() []uint64 { return l.cells[:l.count] }

// launch makes one of a grid of two dimensions.
func launch(kernel ID, x, y, threads int) Launch {
	return Launch{Kernel: kernel, Grid: [3]uint32{uint32(x), uint32(y), 1},
		Block: [3]uint32{uint32(threads), 1, 1}}
}

func (l *Launch) cell(c uint64) {
	l.cells[l.count] = c
	l.count++
}

func (l *Launch) pointers(addresses ...Address) *Launch {
	for _, a := range addresses {
		l.cell(a)
	}
	return l
}

func (l *Launch) ints(values ...int) *Launch {
	for _, v := range values {
		l.cell(uint64(uint32(int32(v))))
	}
	return l
}

func (l *Launch) floats(values ...float32) *Launch {
	for _, v := range values {
		l.cell(uint64(math.Float32bits(v)))
	}
	return l
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// chunks is n divided by size, rounded up.
func chunks(n, size int) int { return (n + size - 1) / size }

// vector is how many numbers a thread takes at once.
const vector = 8

// rowThreads is a block for rows of so many numbers, a multiple of a warp.
func rowThreads(width int) int { return min(max(chunks(width, vector*32)*32, 32), 256) }

// Embed: Dst[r] = Table[Tokens[r]] · Scale, in A; the table has a type of its own.
type Embed struct {
	Dst, Table, Tokens Address
	TableType          gpu.DType
	Rows, Width        int
	Scale              float32
}

// Launch makes the launch for a type of activations.
func (a Embed) Launch(t gpu.DType) Launch {
	l := launch(activation(embedRows, t), a.Rows, 1, rowThreads(a.Width))
	l.pointers(a.Dst, a.Table).ints(int(a.TableType)).pointers(a.Tokens).ints(a.Width).
		floats(a.Scale)
	return l
}

// Norm is gpu.NormArgs. With Add, X += Add is stored first, rounded to A, and the norm is that of
// the sum: the residual sum and the norm behind it in one pass. Add has the layout of X.
type Norm struct {
	Dst, X, Add, Weight Address // Add may be 0
	Rows, Dim, Groups   int
	Stride, Offset      int
	Eps, WeightOffset   float32
	Accumulate          bool
}

// A vector of up to headNorm numbers is the work of a warp, a longer one of a block.
const (
	headNorm = 512
	warps    = 4
)

// Launch makes the launch for a type of activations.
func (a Norm) Launch(t gpu.DType) Launch {
	vectors := a.Rows * a.Groups
	var l Launch
	if a.Dim <= headNorm {
		l = launch(activation(normHeads, t), chunks(vectors, warps), 1, 32*warps)
	} else {
		l = launch(activation(normRows, t), vectors, 1, rowThreads(a.Dim))
		l.Shared = 32 * 4
	}
	l.pointers(a.Dst, a.X, a.Add, a.Weight).ints(a.Dim, a.Groups, a.Stride, a.Offset).
		floats(a.Eps, a.WeightOffset).ints(flag(a.Accumulate), vectors)
	return l
}

// RopeTable: Table[r][i] = (cos, sin)(Positions[r]·Freqs[i])·Scale as float32 pairs, the angle in
// float64. One table serves all layers with the same schedule.
type RopeTable struct {
	Table, Positions, Freqs Address // [Rows][Half][2] float32; int32; [Half] float64
	Rows, Half              int
	Scale                   float32
}

// Launch makes the launch.
func (a RopeTable) Launch() Launch {
	l := launch(alone(ropeTable), a.Rows, 1, min(max(chunks(a.Half, 32)*32, 32), 256))
	l.pointers(a.Table, a.Positions, a.Freqs).ints(a.Half).floats(a.Scale)
	return l
}

// RopeAppend is gpu.RopeArgs: Layer is the start of the layer's pages, Table of RopeTable.
type RopeAppend struct {
	QKV, Layer, Table, Slots Address
	KVType                   gpu.DType
	Rows, Heads, KVHeads     int
	Dim, Half, PageSize      int
}

// Launch makes the launch for a type of activations.
func (a RopeAppend) Launch(t gpu.DType) Launch {
	const perBlock = 8 // a warp for each head
	l := launch(activation(ropeAppend, t), a.Rows, chunks(a.Heads+2*a.KVHeads, perBlock),
		32*perBlock)
	l.pointers(a.QKV, a.Layer).ints(int(a.KVType)).pointers(a.Table, a.Slots).
		ints(a.Heads, a.KVHeads, a.Dim, a.Half, a.PageSize)
	return l
}

// GLU is gpu.GLUArgs.
type GLU struct {
	Dst, GateUp Address
	Rows, Width int
	Activation  gpu.Activation
}

// Launch makes the launch for a type of activations.
func (a GLU) Launch(t gpu.DType) Launch {
	threads := rowThreads(a.Width)
	l := launch(activation(glu, t), a.Rows, chunks(a.Width, threads*vector), threads)
	l.pointers(a.Dst, a.GateUp).ints(a.Width, int(a.Activation))
	return l
}

// Gather: Dst[i] = Src[Rows[i]].
type Gather struct {
	Dst, Src, Rows Address
	Count, Width   int
}

// Launch makes the launch for a type of activations.
func (a Gather) Launch(t gpu.DType) Launch {
	l := launch(activation(gatherRows, t), a.Count, 1, rowThreads(a.Width))
	l.pointers(a.Dst, a.Src, a.Rows).ints(a.Width)
	return l
}

// AddRows: Dst[Rows[i]] += Factors[i]·X[i], factors in float32.
type AddRows struct {
	Dst, X, Rows, Factors Address
	Count, Width          int
}

// Launch makes the launch for a type of activations.
func (a AddRows) Launch(t gpu.DType) Launch {
	l := launch(activation(addRows, t), a.Count, 1, rowThreads(a.Width))
	l.pointers(a.Dst, a.X, a.Rows, a.Factors).ints(a.Width)
	return l
}

// Bias: every row of Dst becomes Bias, so that a product may be added to it.
type Bias struct {
	Dst, Bias   Address
	Rows, Width int
}

// Launch makes the launch for a type of activations.
func (a Bias) Launch(t gpu.DType) Launch {
	l := launch(activation(biasRows, t), a.Rows, 1, rowThreads(a.Width))
	l.pointers(a.Dst, a.Bias).ints(a.Width)
	return l
}

// Convert copies Count numbers between A and float32.
type Convert struct {
	Dst, Src Address
	Count    int
}

const convertThreads = 256

// FromFloat makes the launch that reads float32 and writes A.
func (a Convert) FromFloat(t gpu.DType) Launch { return a.launch(activation(fromFloat, t)) }

// ToFloat makes the launch that reads A and writes float32.
func (a Convert) ToFloat(t gpu.DType) Launch { return a.launch(activation(toFloat, t)) }

func (a Convert) launch(id ID) Launch {
	l := launch(id, chunks(a.Count, convertThreads*vector), 1, convertThreads)
	l.pointers(a.Dst, a.Src).ints(a.Count)
	return l
}

// Fill writes Count numbers of about zero mean and of standard deviation Scale that follow from
// Seed, for measurements.
type Fill struct {
	Dst   Address
	Count int // below 2³¹
	Seed  int
	Scale float32
}

// Launch makes the launch for a type of activations.
func (a Fill) Launch(t gpu.DType) Launch {
	l := launch(activation(fill, t), min(chunks(a.Count, convertThreads*vector), 1024), 1,
		convertThreads)
	l.pointers(a.Dst).ints(a.Count, a.Seed).floats(a.Scale)
	return l
}
