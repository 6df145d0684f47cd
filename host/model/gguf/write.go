package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Pair is one metadata key with its value: a string, bool, int (32 bits without a sign), float64
// (32 bits), []string, []float32 or []int32.
type Pair struct {
	Key   string
	Value any
}

// Out is a tensor to be written. Shape is row-major, as in Tensor; Write writes as many bytes as
// type and shape say.
type Out struct {
	Name  string
	Type  Type
	Shape []int
	Write func(io.Writer) error
}

// Write writes a file of version 3. Tensors are asked for their bytes in order, one at a time.
func Write(to io.Writer, pairs []Pair, tensors []Out) error {
	w := &output{to: bufio.NewWriterSize(to, 1<<20)}
	w.put([]byte(magic))
	w.u32(3)
	w.u64(uint64(len(tensors)))
	w.u64(uint64(len(pairs)))
	for _, p := range pairs {
		w.pair(p)
	}
	offset := uint64(0)
	sizes := make([]uint64, len(tensors))
	for i, t := range tensors {
		reversed := make([]int, len(t.Shape))
		for d, n := range t.Shape {
			reversed[len(t.Shape)-1-d] = n
		}
		size, err := t.Type.bytes(reversed)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		sizes[i] = size
		w.text(t.Name)
		w.u32(uint32(len(reversed)))
		for _, n := range reversed {
			w.u64(uint64(n))
		}
		w.u32(uint32(t.Type))
		w.u64(offset)
		offset += (size + defaultAlignment - 1) / defaultAlignment * defaultAlignment
	}
	for i, t := range tensors {
		w.pad()
		from := w.n
		if w.err == nil {
			w.err = t.Write(w)
		}
		if w.err == nil && w.n-from != sizes[i] {
			w.err = fmt.Errorf("tensor %q: %d bytes for a size of %d", t.Name, w.n-from, sizes[i])
		}
	}
	if w.err != nil {
		return w.err
	}
	return w.to.Flush()
}

// output counts what is written; the first error stays.
type output struct {
	to  *bufio.Writer
	n   uint64
	err error
}

// Write implements io.Writer.
func (w *output) Write(p []byte) (int, error) {
	w.put(p)
	return len(p), w.err
}

func (w *output) put(p []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(p)
		w.n += uint64(len(p))
	}
}

func (w *output) u32(n uint32) { w.put(binary.LittleEndian.AppendUint32(nil, n)) }
func (w *output) u64(n uint64) { w.put(binary.LittleEndian.AppendUint64(nil, n)) }

func (w *output) text(s string) {
	w.u64(uint64(len(s)))
	w.put([]byte(s))
}

// pad brings the next byte to the alignment.
func (w *output) pad() {
	for w.n%defaultAlignment != 0 && w.err == nil {
		w.put([]byte{0})
	}
}

func (w *output) array(of kind, n int) {
	w.u32(uint32(kindArray))
	w.u32(uint32(of))
	w.u64(uint64(n))
}

func (w *output) pair(p Pair) {
	w.text(p.Key)
	switch v := p.Value.(type) {
	case string:
		w.u32(uint32(kindString))
		w.text(v)
	case bool:
		w.u32(uint32(kindBool))
		w.put([]byte{map[bool]byte{true: 1}[v]})
	case int:
		w.u32(uint32(kindU32))
		w.u32(uint32(v))
	case float64:
		w.u32(uint32(kindF32))
		w.u32(math.Float32bits(float32(v)))
	case []string:
		w.array(kindString, len(v))
		for _, s := range v {
			w.text(s)
		}
	case []float32:
		w.array(kindF32, len(v))
		for _, x := range v {
			w.u32(math.Float32bits(x))
		}
	case []int32:
		w.array(kindI32, len(v))
		for _, x := range v {
			w.u32(uint32(x))
		}
	default:
		w.err = fmt.Errorf("metadata key %q: a value of %T cannot be written", p.Key, p.Value)
	}
}
