package kernels

import "github.com/kvrelay/engine/gpu"

// Argmax: Dst[r] is the index (int32) of the largest number of row r, the lowest one among equals,
// and -1 of a row with a NaN, with +Inf, or with nothing but -Inf.
type Argmax struct {
	Dst, X      Address
	Rows, Width int
}

// Launch makes the launch for a type of activations.
func (a Argmax) Launch(t gpu.DType) Launch {
	l := launch(activation(argmax, t), a.Rows, 1, 512)
	l.Shared = 2 * 32 * 4
	l.pointers(a.Dst, a.X).ints(a.Width)
	return l
}

// MaxTopK is the most candidates that TopK gives of a row.
const MaxTopK = 256

const (
	topKThreads = 512
	topKShared  = 256*4 + MaxTopK*8 + 32*4 + 4*4 // struct Room of sample.cu
)

// TopK is the sampler's prefilter: the K largest numbers of a row, sorted from the largest, lower
// indices first among equals, and what top-p needs of the rest: Sums[r] is
// Σ exp((x - maximum)·Inverse[r]) over the whole row, which a NaN, an infinity or nothing but -Inf
// makes a NaN. Among candidates NaNs count as the least number.
type TopK struct {
	Indices, Values, Sums Address // [Rows][K] int32; [Rows][K] float32; [Rows] float32
	X, Inverse            Address // Inverse is 1/temperature: [Rows] float32
	Rows, Width, K        int     // K is at most MaxTopK and Width
}

// Launch makes the launch for a type of activations.
func (a TopK) Launch(t gpu.DType) Launch {
	l := launch(activation(topK, t), a.Rows, 1, topKThreads)
	l.Shared = topKShared
	l.pointers(a.Indices, a.Values, a.Sums, a.X, a.Inverse).ints(a.Width, a.K)
	return l
}
