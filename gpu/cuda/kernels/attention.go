package kernels

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// The numbers of attention, on which every row's bits depend: keys are taken in tiles counted from
// position 0, tiles in splits counted from position 0, and the splits of a row are folded in order,
// whichever kernel computes them. So neither chunks, nor pages, nor neighbours change a bit.
const (
	attentionTile  = 64
	attentionSplit = 512
	groupRows      = 16 // query heads of one key head that one block of decode takes
)

// Fast says whether the tensor core kernels take a pool, where a block may have so many bytes of
// shared memory: else the kernel for any shape does, for prompts and decode alike.
func Fast(s gpu.KVShape, shared int) bool {
	return (s.DType == gpu.F16 || s.DType == gpu.BF16) && slices.Contains(headDims[:], s.HeadDim) &&
		attentionRoom(false, s.HeadDim, true, shared).fits() &&
		attentionRoom(true, s.HeadDim, false, shared).fits()
}

// The words of a plan's header.
const (
	planTiles     = iota // prefill tiles: count
	planItems            // decode items: count
	planRows             // decode rows: count
	planAny              // rows for the kernel of any shape: count
	planSequences        // where each list starts, in words
	planTileList
	planItemList
	planRowList
	planAnyList
	planPages
	planHeader = 16
)

// Plan is what the attention kernels of one batch read besides buffers. It is the same for all
// layers with the same window and sinks.
type Plan struct {
	// Words go to device memory, at an address aligned to 16 bytes.
	Words []int32

	tiles, items, rows, any int
	prefill, decode         room
}

// Batch is what a plan depends on.
type Batch struct {
	Shape gpu.KVShape
	// Shared is the most bytes of shared memory that a block may have on the device.
	Shared        int
	Window, Sinks int
	Sequences     []gpu.AttentionSequence
}

// planner collects the lists of a plan.
type planner struct {
	Batch
	sequences, tiles, items, rows, any, pages []int32
	long                                      bool // a prefill row sees more than one split
}

// Make replaces the plan by that of a batch, and reuses its memory.
func (p *Plan) Make(b Batch) {
	w := planner{Batch: b}
	fast := Fast(b.Shape, b.Shared)
	for i, s := range b.Sequences {
		w.sequences = append(w.sequences, int32(s.FirstRow), int32(s.Rows), int32(s.Start),
			int32(len(w.pages)))
		w.pages = append(w.pages, s.Pages...)
		switch {
		case !fast:
			for r := range s.Rows {
				w.any = append(w.any, int32(i), int32(r))
			}
		case s.Rows == 1:
			w.decode(i, s)
		default:
			w.prefill(i, s)
		}
	}
	w.balance()
	p.tiles, p.items = len(w.tiles)/2, len(w.items)/2
	p.rows, p.any = len(w.rows)/4, len(w.any)/2
	p.prefill = attentionRoom(false, b.Shape.HeadDim, w.long, b.Shared)
	p.decode = attentionRoom(true, b.Shape.HeadDim, false, b.Shared)
	p.Words = w.words(p.Words[:0])
}

// prefill appends the tiles of query rows.
func (w *planner) prefill(i int, s gpu.AttentionSequence) {
	for first := 0; first < s.Rows; first += attentionTile {
		w.tiles = append(w.tiles, int32(i), int32(first))
	}
	w.long = w.long || s.Start+s.Rows > attentionSplit
}

// decode appends one row's splits that have something to see.
func (w *planner) decode(i int, s gpu.AttentionSequence) {
	first := len(w.items) / 2
	low := 0
	if w.Window > 0 {
		low = max(0, s.Start-w.Window+1)
	}
	for split := 0; split*attentionSplit <= s.Start; split++ {
		if (split+1)*attentionSplit > low || split*attentionSplit < w.Sinks {
			w.items = append(w.items, int32(i), int32(split))
		}
	}
	w.rows = append(w.rows, int32(s.FirstRow), int32(first), int32(len(w.items)/2-first), 0)
}

// balance puts the tiles with most keys first: the last ones to start are then the short ones.
func (w *planner) balance() {
	pairs := make([][2]int32, len(w.tiles)/2)
	for i := range pairs {
		pairs[i] = [2]int32{w.tiles[2*i], w.tiles[2*i+1]}
	}
	end := func(t [2]int32) int32 { return w.sequences[4*t[0]+2] + t[1] }
	slices.SortStableFunc(pairs, func(a, b [2]int32) int { return cmp.Compare(end(b), end(a)) })
	for i, t := range pairs {
		w.tiles[2*i], w.tiles[2*i+1] = t[0], t[1]
	}
}

// words lays the lists out behind the header.
func (w *planner) words(words []int32) []int32 {
	words = append(words, make([]int32, planHeader)...)
	for i, list := range []struct {
		words []int32
		size  int
	}{
		{w.tiles, 2}, {w.items, 2}, {w.rows, 4}, {w.any, 2},
	} {
		words[i] = int32(len(list.words) / list.size)
	}
	for i, list := range [][]int32{w.sequences, w.tiles, w.items, w.rows, w.any, w.pages} {
		words[planSequences+i] = int32(len(words))
		words = append(words, list...)
	}
	return words
}

// ScratchFloats is how many float32 of scratch memory the launches need.
func (p *Plan) ScratchFloats(heads, dim int) int {
	floats := p.partials(heads, dim)
	if p.prefill.far {
		floats += p.tiles * heads * attentionTile * dim
	}
	return floats
}

// partials is how many of them the splits of decode take. The sums of prefill follow.
func (p *Plan) partials(heads, dim int) int { return p.items * heads * (dim + partialExtra) }

// partialExtra are the numbers beside a partial result: its maximum and its sum, and two to keep
// the next one aligned to 16 bytes.
const partialExtra = 4

// Attention is gpu.AttentionArgs with a plan of its sequences.
type Attention struct {
	Dst, QKV, Layer Address // Layer is the start of the layer's pages
	Words           Address // where the plan's words are
	Scratch         Address // ScratchFloats of float32; may be 0 when that is 0
	Plan            *Plan
	Shape           gpu.KVShape
	Heads           int
	Scale, Cap      float32
	Window, Sinks   int
}

// Append appends the launches, in the order in which they must run, for a type of activations.
func (a Attention) Append(launches []Launch, t gpu.DType) []Launch {
	p, s := a.Plan, a.Shape
	if p.any > 0 {
		l := launch(activation(attendAny, t), p.any, a.Heads, 32)
		l.Shared = anyShared(s.HeadDim)
		l.pointers(a.Dst, a.QKV, a.Layer).ints(int(s.DType)).pointers(a.Words).
			ints(a.Heads, s.KVHeads, s.HeadDim, s.PageSize).floats(a.Scale, a.Cap).
			ints(a.Window, a.Sinks)
		launches = append(launches, l)
	}
	if p.tiles > 0 {
		l := launch(attendFast(false, s.DType, s.HeadDim), p.tiles, a.Heads,
			attentionThreads(false, s.HeadDim))
		l.Shared = uint32(p.prefill.bytes)
		l = a.fast(l, a.Dst, t, p.prefill)
		sums := Address(0)
		if p.prefill.far {
			sums = a.Scratch + 4*Address(p.partials(a.Heads, s.HeadDim))
		}
		l.pointers(sums)
		launches = append(launches, l)
	}
	if p.items > 0 {
		groups := chunks(a.Heads/s.KVHeads, groupRows)
		l := launch(attendFast(true, s.DType, s.HeadDim), p.items, s.KVHeads*groups,
			attentionThreads(true, s.HeadDim))
		l.Shared = uint32(p.decode.bytes)
		launches = append(launches, a.fast(l, a.Scratch, t, p.decode))
		c := launch(activation(attendCombine, t), p.rows, a.Heads, min(s.HeadDim, 128))
		c.pointers(a.Dst, a.Scratch, a.Words).ints(a.Heads, s.HeadDim)
		launches = append(launches, c)
	}
	return launches
}

// fast adds the parameters of the tensor core kernels.
func (a Attention) fast(l Launch, dst Address, t gpu.DType, r room) Launch {
	l.pointers(dst, a.QKV, a.Layer).ints(int(t)).pointers(a.Words).
		ints(a.Heads, a.Shape.KVHeads, a.Shape.PageSize).floats(a.Scale, a.Cap).
		ints(a.Window, a.Sinks, r.stages)
	return l
}

// attentionThreads is the block of the tensor core kernels.
func attentionThreads(decode bool, dim int) int {
	if !decode && dim > 128 {
		return 256
	}
	return 128
}

// room is how the tensor core kernels lie in a block's shared memory. No number depends on it.
type room struct {
	// stages is for how many tiles of keys and values there is room: with two of them the next is
	// copied while one is attended to. 0: the kernels do not fit.
	stages int
	far    bool // the sums over splits lie in scratch memory
	bytes  int
}

func (r room) fits() bool { return r.stages > 0 }

// attentionRoom is the fastest way that fits: queries, two tiles, and the sums over splits where a
// row may see several; those sums, which are touched once a split, elsewhere; a single tile.
func attentionRoom(decode bool, dim int, long bool, most int) room {
	rows := attentionTile
	if decode {
		rows = groupRows
	}
	queries, tile, sums := rows*dim*2, 2*attentionTile*dim*2, rows*dim*4
	if !long {
		sums = 0
	}
	for _, r := range []room{
		{stages: 2, bytes: queries + 2*tile + sums},
		{stages: 2, far: long, bytes: queries + 2*tile},
		{stages: 1, far: long, bytes: queries + tile},
	} {
		if r.bytes <= most {
			return r
		}
	}
	return room{}
}

// attentionShared is the most that a launch asks for.
func attentionShared(decode bool, dim int) int {
	return attentionRoom(decode, dim, !decode, math.MaxInt).bytes
}

// anyShared is the shared memory of the kernel of any shape.
func anyShared(dim int) uint32 { return uint32(32*8 + 2*4*dim + 32*4) }
