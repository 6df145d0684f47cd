package cpu

import (
	"encoding/binary"
	"math"

	"github.com/kvrelay/engine/gpu"
)

// twinKV keeps keys and values as the canonical layout of gpu.KVRange has them:
// [layer][page][slot][head][dim].
type twinKV struct {
	shape        gpu.KVShape
	keys, values twinNumbers
}

// twinNumbers are numbers as a type stores them, and what they are worth.
type twinNumbers struct {
	dtype  gpu.DType
	bytes  []byte
	floats []float32
}

func newTwinNumbers(dtype gpu.DType, size int) twinNumbers {
	return twinNumbers{dtype, make([]byte, dtype.RowBytes(size)), make([]float32, size)}
}

// stored is the bytes of numbers [at, at+size); both are multiples of a block's length.
func (n *twinNumbers) stored(at, size int) []byte {
	return n.bytes[n.dtype.RowBytes(at):][:n.dtype.RowBytes(size)]
}

// put stores whole blocks from number at on.
func (n *twinNumbers) put(at int, x []float32) {
	to := n.stored(at, len(x))
	for i, v := range x {
		switch n.dtype {
		case gpu.F32:
			binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(v))
		case gpu.F16:
			binary.LittleEndian.PutUint16(to[2*i:], floatToHalf(v))
		case gpu.BF16:
			binary.LittleEndian.PutUint16(to[2*i:], floatToBfloat(v))
		case gpu.Q8_0:
			if _, bytes := n.dtype.Block(); i%quantBlock == 0 {
				block := to[i/quantBlock*bytes:][:bytes]
				putBlock(block, (*[quantBlock]float32)(x[i:]))
			}
		}
	}
	n.widen(at, len(x))
}

// putBlock stores a block in Q8_0.
func putBlock(to []byte, x *[quantBlock]float32) {
	var q [quantBlock]int8
	scale, _ := quantiseBlock(&q, x)
	binary.LittleEndian.PutUint16(to, floatToHalf(scale))
	for i, v := range q {
		to[2+i] = byte(v)
	}
}

// set stores bytes that came from elsewhere.
func (n *twinNumbers) set(at, size int, src []byte) {
	copy(n.stored(at, size), src)
	n.widen(at, size)
}

// widen finds what stored numbers are worth.
func (n *twinNumbers) widen(at, size int) {
	stored := n.stored(at, size)
	if n.dtype.Quantised() {
		blocks := newTwinBlocks(n.dtype, stored)
		for i := range size {
			n.floats[at+i] = blocks.number(i)
		}
		return
	}
	for i := range size {
		n.floats[at+i] = element(n.dtype, stored, i)
	}
}

func (kv *twinKV) Shape() gpu.KVShape { return kv.shape }

// at is the index of the first element of a slot's heads; slot counts through the whole pool.
func (kv *twinKV) at(layer, slot int) int {
	slots := kv.shape.Pages * kv.shape.PageSize
	return (layer*slots + slot) * kv.shape.KVHeads * kv.shape.HeadDim
}

// AllocKV implements gpu.Memory.
func (*Twin) AllocKV(shape gpu.KVShape) (gpu.KV, error) {
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	kv := &twinKV{shape: shape}
	size := kv.at(shape.Layers, 0)
	kv.keys, kv.values = newTwinNumbers(shape.DType, size), newTwinNumbers(shape.DType, size)
	return kv, nil
}

// RopeAppend implements gpu.Kernels.
func (*Twin) RopeAppend(a gpu.RopeArgs) error {
	kv := a.KV.(*twinKV)
	if err := checkRope(a, kv.shape); err != nil {
		return err
	}
	half, width := len(a.Rope.Freqs), (a.Heads+2*a.KVHeads)*a.HeadDim
	cos, sin := make([]float32, half), make([]float32, half)
	for r, position := range a.Positions {
		row := floats(a.QKV)[r*width:][:width]
		angles(cos, sin, a.Rope, position)
		for h := range a.Heads + a.KVHeads {
			head := row[h*a.HeadDim:]
			rotate(head[:half], head[half:2*half], cos, sin)
		}
		at, size := kv.at(a.Layer, int(a.Slots[r])), a.KVHeads*a.HeadDim
		kv.keys.put(at, row[a.Heads*a.HeadDim:][:size])
		kv.values.put(at, row[a.Heads*a.HeadDim+size:][:size])
	}
	return nil
}

// Attention implements gpu.Kernels.
func (*Twin) Attention(a gpu.AttentionArgs) error {
	kv := a.KV.(*twinKV)
	if err := checkAttention(a, kv.shape); err != nil {
		return err
	}
	width := (a.Heads + 2*a.KVHeads) * a.HeadDim
	for _, s := range a.Sequences {
		for i := range s.Rows {
			for h := range a.Heads {
				q := floats(a.QKV)[(s.FirstRow+i)*width+h*a.HeadDim:][:a.HeadDim]
				o := floats(a.Dst)[((s.FirstRow+i)*a.Heads+h)*a.HeadDim:][:a.HeadDim]
				attend(o, q, &head{args: &a, kv: kv, pages: s.Pages,
					index: h / (a.Heads / a.KVHeads), position: s.Start + i})
			}
		}
	}
	return nil
}

// head is what one query head of one row looks at.
type head struct {
	args     *gpu.AttentionArgs
	kv       *twinKV
	pages    []int32
	index    int // which key and value head
	position int
}

// at is the index of the key and of the value at a position.
func (h *head) at(position int) int {
	size := h.kv.shape.PageSize
	slot := int(h.pages[position/size])*size + position%size
	return h.kv.at(h.args.Layer, slot) + h.index*h.args.HeadDim
}

// attend is online softmax attention, one block of positions after another (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018). Within a block the values of the visible
// positions are added in order.
func attend(o, q []float32, h *head) {
	clear(o)
	top, total := float32(math.Inf(-1)), float32(0)
	for start := 0; start <= h.position; start += attentionBlock {
		low, high := visible(h.args, h.position, start)
		if low >= high {
			continue
		}
		var scores [attentionBlock]float32
		for i := range scores {
			scores[i] = float32(math.Inf(-1))
			if i < low || i >= high || hidden(h.args, h.position, start+i) {
				continue
			}
			scores[i] = 0
			for d, k := range h.kv.keys.floats[h.at(start+i):][:len(q)] {
				scores[i] = fma32(q[d], k, scores[i])
			}
			scores[i] = capped(scores[i], h.args)
		}
		newTop, sum := softmaxBlock(&scores, scaleBehindCap(h.args), top)
		correction := exp32(top - newTop)
		top, total = newTop, fma32(total, correction, sum)
		scaleRow(o, correction)
		for i := low; i < high; i++ {
			if hidden(h.args, h.position, start+i) {
				continue
			}
			for d, v := range h.kv.values.floats[h.at(start+i):][:len(o)] {
				o[d] = fma32(scores[i], v, o[d])
			}
		}
	}
	scaleRow(o, 1/total)
}

// CopyKV implements gpu.Kernels.
func (*Twin) CopyKV(pool gpu.KV, copies []gpu.KVCopy) error {
	kv := pool.(*twinKV)
	if err := checkCopies(kv.shape, copies); err != nil {
		return err
	}
	for _, c := range copies {
		for layer := range kv.shape.Layers {
			from := kv.at(layer, int(c.From)*kv.shape.PageSize)
			to := kv.at(layer, int(c.To)*kv.shape.PageSize)
			size := c.Tokens * kv.shape.KVHeads * kv.shape.HeadDim
			kv.keys.set(to, size, kv.keys.stored(from, size))
			kv.values.set(to, size, kv.values.stored(from, size))
		}
	}
	return nil
}

// PackKV implements gpu.Kernels.
func (*Twin) PackKV(pool gpu.KV, r gpu.KVRange, dst []byte) error {
	kv := pool.(*twinKV)
	if err := checkRange(kv.shape, r, dst); err != nil {
		return err
	}
	at := kv.at(r.Layer, r.Page*kv.shape.PageSize+r.First)
	half, size := len(dst)/2, r.Count*kv.shape.KVHeads*kv.shape.HeadDim
	copy(dst, kv.keys.stored(at, size))
	copy(dst[half:], kv.values.stored(at, size))
	return nil
}

// UnpackKV implements gpu.Kernels.
func (*Twin) UnpackKV(pool gpu.KV, r gpu.KVRange, src []byte) error {
	kv := pool.(*twinKV)
	if err := checkRange(kv.shape, r, src); err != nil {
		return err
	}
	at := kv.at(r.Layer, r.Page*kv.shape.PageSize+r.First)
	half, size := len(src)/2, r.Count*kv.shape.KVHeads*kv.shape.HeadDim
	kv.keys.set(at, size, src)
	kv.values.set(at, size, src[half:])
	return nil
}
