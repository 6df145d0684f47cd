package kernels

import "github.com/kvrelay/engine/gpu"

// PageBytes is what a page takes in one layer: keys, then values.
func PageBytes(s gpu.KVShape) int64 { return int64(s.PageSize) * int64(s.TokenBytes()) }

// LayerBytes is what all pages take in one layer, and the distance from layer to layer.
func LayerBytes(s gpu.KVShape) int64 { return int64(s.Pages) * PageBytes(s) }

// PoolBytes is the size of the pool's allocation.
func PoolBytes(s gpu.KVShape) int64 { return int64(s.Layers) * LayerBytes(s) }

// KVWords are the int32 that describe one copy or range to the kernels.
const (
	CopyWords  = 4
	RangeWords = 4
)

// AppendCopies appends copies as CopyPages reads them, CopyWords each.
func AppendCopies(words []int32, copies []gpu.KVCopy) []int32 {
	for _, c := range copies {
		words = append(words, c.From, c.To, int32(c.Tokens), 0)
	}
	return words
}

// CopyPages is gpu.Kernels.CopyKV. No page may be both read and written by one launch.
type CopyPages struct {
	Pool, Copies Address // Copies as AppendCopies makes them
	Count        int
	Shape        gpu.KVShape
}

// Launch makes the launch.
func (a CopyPages) Launch() Launch {
	l := launch(alone(copyPages), a.Count, a.Shape.Layers, 256)
	l.pointers(a.Pool, a.Copies).ints(a.Shape.Layers, a.Shape.Pages, a.Shape.PageSize,
		a.Shape.TokenBytes()/2)
	return l
}

// AppendRange appends a range of some layer as the pack kernels read it. Slot is where it begins in
// the packed memory, counted in slots of TokenBytes: the sum of the counts before it.
func AppendRange(words []int32, r gpu.KVRange, slot int) []int32 {
	return append(words, int32(r.Page), int32(r.First), int32(r.Count), int32(slot))
}

// PackPages copies ranges of one layer to packed memory, one after another in the canonical layout
// of gpu.KVRange each, or back.
type PackPages struct {
	Packed, Layer, Ranges Address // Layer is the start of the layer's pages
	Count                 int
	Shape                 gpu.KVShape
}

// Pack makes the launch from pages to packed memory.
func (a PackPages) Pack() Launch { return a.launch(alone(packPages)) }

// Unpack makes the launch from packed memory to pages.
func (a PackPages) Unpack() Launch { return a.launch(alone(unpackPages)) }

func (a PackPages) launch(id ID) Launch {
	const blockBytes = 256 * 16 * 4 // four vectors of 16 bytes a thread
	side := a.Shape.TokenBytes() / 2
	l := launch(id, a.Count, 2*min(chunks(a.Shape.PageSize*side, blockBytes), 1024), 256)
	l.pointers(a.Packed, a.Layer, a.Ranges).ints(a.Count, a.Shape.PageSize, side)
	return l
}
