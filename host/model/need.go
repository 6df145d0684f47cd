package model

import (
	"errors"
	"fmt"

	"github.com/kvrelay/engine/gpu"
)

// Need is how many bytes of device memory a model takes.
type Need struct {
	Weights int64
	Scratch int64 // activations of one batch of MaxRows
	Token   int64 // keys and values of one token, all layers
}

// Need predicts the memory of the model from its configuration alone, for weights of the type that
// Options name, else of the one that the configuration states. The device's own padding comes on
// top; it is a few percent of any but tiny models.
func (c Config) Need(o Options) Need {
	dtype := c.DType
	if o.DType != nil {
		dtype = *o.DType
	}
	need := Need{
		Weights: c.matrices*int64(dtype.Bytes()) + c.vectors*4,
		Scratch: sizesOf(c, o.rows()).bytes(),
		Token:   int64(c.Layers) * int64(c.kvShape(o.KV, 1, 1).TokenBytes()),
	}
	if o.DType == nil && c.storedBytes > 0 {
		need.Weights = c.storedBytes
	}
	return need
}

// ErrKVType is wrapped where a model's heads do not fit the blocks of Options.KV.
var ErrKVType = errors.New("keys and values cannot be kept in that type")

// KeepsKV is an error where keys and values of the model cannot be kept in a type: a head of Q8_0
// is a whole number of blocks.
func (c Config) KeepsKV(dtype gpu.DType) error {
	if length, _ := dtype.Block(); length == 0 || c.HeadDim%length != 0 {
		return fmt.Errorf("%w: %v has blocks of %d numbers, and a head of this model has %d; f16, "+
			"bf16 and f32 take any", ErrKVType, dtype, length, c.HeadDim)
	}
	return nil
}

// kvShape is the pool of so many pages.
func (c Config) kvShape(dtype gpu.DType, pages, pageSize int) gpu.KVShape {
	return gpu.KVShape{Layers: c.Layers, Pages: pages, PageSize: pageSize,
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, DType: dtype}
}

// sizes are the elements of the buffers of a forward pass.
type sizes struct{ hidden, narrow, x, qkv, gateUp, mlp, logits, scores, expert int }

// headRows is how many rows of logits are computed at once: the buffer would else be MaxRows
// vocabularies. A multiple of the tile height of the CPU device.
const headRows = 48

func sizesOf(c Config, rows int) sizes {
	n := sizes{
		hidden: rows * c.Hidden,
		narrow: rows * c.Hidden,
		x:      rows * max(c.Hidden, c.Heads*c.HeadDim),
		qkv:    rows * (c.Heads + 2*c.KVHeads) * c.HeadDim,
		gateUp: rows * max(2*c.Intermediate, c.Hidden),
		mlp:    rows * max(c.Intermediate, c.Heads*c.HeadDim),
		logits: min(rows, headRows) * c.Vocabulary,
	}
	if c.Experts > 0 {
		n.scores, n.expert = rows*c.Experts, rows*c.Hidden
	}
	return n
}

// bytes counts them in float32.
func (s sizes) bytes() int64 {
	return 4 * int64(s.hidden+s.narrow+s.x+s.qkv+s.gateUp+s.mlp+s.logits+s.scores+s.expert)
}
