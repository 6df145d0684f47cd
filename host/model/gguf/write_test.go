package gguf

import (
	"encoding/binary"
	"math"
)

// writer builds a file byte by byte.
type writer []byte

func (w *writer) u32(n uint32) { *w = binary.LittleEndian.AppendUint32(*w, n) }
func (w *writer) u64(n uint64) { *w = binary.LittleEndian.AppendUint64(*w, n) }
func (w *writer) text(s string) {
	w.u64(uint64(len(s)))
	*w = append(*w, s...)
}

// pair is one key with its value: a string, bool, uint32, float32, []string, []float32 or []int32,
// or raw bytes that begin with the type.
type pair struct {
	key   string
	value any
}

func (w *writer) pair(p pair) {
	w.text(p.key)
	switch v := p.value.(type) {
	case writer:
		*w = append(*w, v...)
	case string:
		w.u32(uint32(kindString))
		w.text(v)
	case bool:
		w.u32(uint32(kindBool))
		*w = append(*w, map[bool]byte{true: 1}[v])
	case uint32:
		w.u32(uint32(kindU32))
		w.u32(v)
	case float32:
		w.u32(uint32(kindF32))
		w.u32(math.Float32bits(v))
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
		panic("no such value")
	}
}

func (w *writer) array(of kind, n int) {
	w.u32(uint32(kindArray))
	w.u32(uint32(of))
	w.u64(uint64(n))
}

// entry is what a file says of a tensor; its data is zeros, as many as the others leave.
type entry struct {
	name    string
	shape   []uint64 // rows last, as in the file
	of      Type
	offset  uint64
	content []byte // at offset
}

// build writes a file of version 3.
func build(pairs []pair, entries []entry, size int) []byte {
	w := writer(magic)
	w.u32(3)
	w.u64(uint64(len(entries)))
	w.u64(uint64(len(pairs)))
	for _, p := range pairs {
		w.pair(p)
	}
	for _, e := range entries {
		w.text(e.name)
		w.u32(uint32(len(e.shape)))
		for _, n := range e.shape {
			w.u64(n)
		}
		w.u32(uint32(e.of))
		w.u64(e.offset)
	}
	for len(w)%defaultAlignment != 0 {
		w = append(w, 0)
	}
	data := make([]byte, size)
	for _, e := range entries {
		copy(data[min(e.offset, uint64(size)):], e.content)
	}
	return append(w, data...)
}
