package bench

import (
	"encoding/binary"
	"fmt"

	"github.com/kvrelay/engine/gpu"
)

// headRows is the most rows of logits that a model computes at once.
const headRows = 48

// product is a matrix of a layer: output rows, columns, and how many of it are packed.
type product struct {
	n, k    int
	weights []gpu.Matrix
	head    bool
}

// products measures the matrix products of a layer and of the head, for each number of rows.
// So many copies of each are packed that it comes from memory when its turn has come again.
func (k *Kernels) products(dtype gpu.DType) ([]KernelResult, error) {
	s := k.Shape
	length, _ := dtype.Block()
	whole := func(cols int) int { return (cols + length - 1) / length * length }
	list := []*product{{n: s.width(), k: whole(s.Hidden)},
		{n: s.Hidden, k: whole(s.Heads * s.HeadDim)},
		{n: 2 * s.Inner, k: whole(s.Hidden)}, {n: s.Hidden, k: whole(s.Inner)},
		{n: s.Vocabulary, k: whole(s.Hidden), head: true}}
	layer, widest, longest := 0, 0, 0
	for _, p := range list {
		if !p.head {
			layer += p.n * dtype.RowBytes(p.k)
		}
		widest, longest = max(widest, p.n), max(longest, p.k)
	}
	for _, p := range list {
		together := layer // what is read between two uses of one copy, for each copy
		if p.head {
			together = p.n * dtype.RowBytes(p.k)
		}
		copies := (k.Far + together - 1) / together
		for range copies {
			w, err := k.Device.Pack(someWeights(dtype, p.n, p.k))
			if err != nil {
				return nil, err
			}
			p.weights = append(p.weights, w)
		}
	}
	most := 1
	for _, rows := range k.Rows {
		most = max(most, rows)
	}
	x, err := k.filled(most * longest)
	if err != nil {
		return nil, err
	}
	dst, err := k.Device.Alloc(max(most*2*s.Inner, most*s.width(), min(most, headRows)*widest))
	if err != nil {
		return nil, err
	}
	var results []KernelResult
	for _, rows := range k.Rows {
		var calls []call
		for _, p := range list {
			if !p.head || rows <= headRows {
				calls = append(calls, k.product(dtype, p, gpu.MatMulArgs{Dst: dst, X: x,
					Rows: rows}))
			}
		}
		list, err := k.sample(calls)
		if err != nil {
			return nil, err
		}
		results = append(results, list...)
	}
	return results, nil
}

// product is one product ready to be measured. It reads its weights and activations once and writes
// its result once.
func (k *Kernels) product(dtype gpu.DType, p *product, a gpu.MatMulArgs) call {
	return call{
		name:       fmt.Sprintf("matmul %v %dx%d, %d rows", dtype, p.n, p.k, a.Rows),
		operations: 2 * float64(a.Rows) * float64(p.n) * float64(p.k),
		bytes:      float64(p.n*dtype.RowBytes(p.k)) + 4*float64(a.Rows)*float64(p.n+p.k),
		compute:    k.Product(dtype, a.Rows), bandwidth: k.Limits.Memory,
		run: func(i int) error {
			a.W = p.weights[i%len(p.weights)]
			return k.Device.MatMul(a)
		},
	}
}

// someWeights are small numbers of a type: their values change no kernel's speed as long as none is
// denormal or overflows.
func someWeights(dtype gpu.DType, rows, cols int) gpu.Tensor {
	data := make([]byte, rows*dtype.RowBytes(cols))
	_, bytes := dtype.Block()
	state := uint64(rows*cols) | 1
	for at := 0; at+8 <= len(data); at += 8 {
		state ^= state << 13 // Marsaglia, "Xorshift RNGs", 2003.
		state ^= state >> 7
		state ^= state << 17
		binary.LittleEndian.PutUint64(data[at:], state)
	}
	for at := 0; at < len(data); at += bytes {
		switch { // a small number, or small scales
		case dtype == gpu.F32:
			data[at+3] = data[at+3]&0x80 | 0x3c
		case dtype == gpu.BF16:
			data[at+1] = data[at+1]&0x80 | 0x3c
		case dtype == gpu.F16:
			data[at+1] = data[at+1]&0x80 | 0x24
		case dtype == gpu.Q6_K:
			binary.LittleEndian.PutUint16(data[at+bytes-2:], 0x0c00)
		default:
			binary.LittleEndian.PutUint32(data[at:], 0x0c000c00)
		}
	}
	return gpu.Tensor{Rows: rows, Cols: cols, DType: dtype, Data: data}
}

// filled is a buffer of numbers around one.
func (k *Kernels) filled(elements int) (gpu.Buffer, error) {
	b, err := k.Device.Alloc(elements)
	if err != nil {
		return nil, err
	}
	numbers := make([]float32, elements)
	for i := range numbers {
		numbers[i] = 0.5 + float32(i%97)/97
	}
	return b, k.Device.Write(b, numbers)
}
