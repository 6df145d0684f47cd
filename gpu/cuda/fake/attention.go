package fake

import (
	"fmt"
	"math"

	"github.com/kvrelay/engine/gpu"
)

// view is attention as its launch describes it.
type view struct {
	*call
	dst, qkv, layer         uint64
	rows, stored            gpu.DType
	plan                    uint64
	heads, kvHeads, dim     int
	pageSize, window, sinks int
	scale, cap              float32
}

// The words of a plan; package kernels writes them.
const (
	planSequences = 4
	planTileList  = 5
	planItemList  = 6
	planRowList   = 7
	planAnyList   = 8
	planPages     = 9
	planHeader    = 16
	tileRows      = 64
	splitKeys     = 512
	groupRows     = 16
	partExtra     = 4
)

func attendAny(c *call) {
	v := view{call: c, rows: c.named(), dst: c.ptr(), qkv: c.ptr(), layer: c.ptr()}
	v.stored = c.dtype()
	words := c.ptr()
	v.heads, v.kvHeads, v.dim, v.pageSize = c.int(), c.int(), c.int(), c.int()
	v.rest(words)
	for i := range v.word(3) {
		at := v.word(planAnyList) + 2*i
		v.attend(v.word(at), v.word(at+1), nil)
	}
}

// fast reads the parameters of the tensor core kernels, which have types in their names.
func fast(c *call, family string) view {
	v := view{call: c, dst: c.ptr(), qkv: c.ptr(), layer: c.ptr(), rows: c.dtype()}
	words := c.ptr()
	v.heads, v.kvHeads, v.pageSize = c.int(), c.int(), c.int()
	var stored string
	for _, t := range []gpu.DType{gpu.F16, gpu.BF16} {
		_, err := fmt.Sscanf(c.kernel.name, family+"_"+t.String()+"_%d", &v.dim)
		if err == nil {
			v.stored, stored = t, t.String()
		}
	}
	if stored == "" {
		panic(broken(launchFailed))
	}
	v.rest(words)
	return v
}

// room sees that the launch gives a tensor core kernel the shared memory that it touches: queries,
// tiles of keys and values, and of rows that see several splits the sums.
func (v *view) room(rows, stages, sums int) {
	if bytes := 2*rows*v.dim + stages*4*tileRows*v.dim + 4*sums*v.dim; stages < 1 ||
		stages > 2 || bytes > v.shared {
		panic(broken(illegalAddress))
	}
}

func (v *view) rest(words uint64) {
	v.scale, v.cap, v.window, v.sinks = v.float(), v.float(), v.int(), v.int()
	v.plan = words
}

// word is one of the plan's.
func (v *view) word(i int) int { return int(v.ints(v.plan+4*uint64(i), 1)[0]) }

func attendPrefill(c *call) {
	v := fast(c, "attend_prefill")
	stages, sums := v.int(), v.ptr()
	for i := range v.word(0) {
		at := v.word(planTileList) + 2*i
		sequence, first := v.word(at), v.word(at+1)
		rows := v.word(v.word(planSequences) + 4*sequence + 1)
		end := v.word(v.word(planSequences)+4*sequence+2) + min(first+tileRows, rows)
		switch size := v.heads * tileRows * v.dim; {
		case end <= splitKeys:
			v.room(tileRows, stages, 0)
		case sums == 0:
			v.room(tileRows, stages, tileRows)
		default:
			v.room(tileRows, stages, 0)
			v.row(sums, gpu.F32, i*size, size)
		}
		for r := first; r < min(first+tileRows, rows); r++ {
			v.attend(sequence, r, nil)
		}
	}
}

// attendDecode leaves the whole result in the first part of each row and nothing in the others.
func attendDecode(c *call) {
	v := fast(c, "attend_decode")
	v.room(groupRows, v.int(), 0)
	scratch := v.dst
	last := -1
	for i := range v.word(1) {
		at := v.word(planItemList) + 2*i
		sequence := v.word(at)
		size := v.heads * (v.dim + partExtra)
		part := v.row(scratch, gpu.F32, i*size, size)
		if sequence != last {
			v.attend(sequence, 0, &part)
		}
		last = sequence
	}
}

func attendCombine(c *call) {
	rows, dst, scratch, words := c.named(), c.ptr(), c.ptr(), c.ptr()
	heads, dim := c.int(), c.int()
	header := c.ints(words, planHeader)
	list := c.ints(words+4*uint64(header[planRowList]), 4*int(header[2]))
	for i := 0; i < len(list); i += 4 {
		to := c.row(dst, rows, int(list[i])*heads*dim, heads*dim)
		size := heads * (dim + partExtra)
		part := c.row(scratch, gpu.F32, int(list[i+1])*size, size)
		for k := range heads * dim {
			to.set(k, part.get(k))
		}
	}
}

// attend computes one row of all heads, into dst or into a part.
func (v *view) attend(sequence, r int, part *row) {
	at := v.word(planSequences) + 4*sequence
	first, start, pages := v.word(at), v.word(at+2), v.word(at+3)
	pages += v.word(planPages)
	width := (v.heads + 2*v.kvHeads) * v.dim
	to := v.row0(part, first+r)
	for h := range v.heads {
		q := v.row(v.qkv, v.rows, (first+r)*width+h*v.dim, v.dim)
		v.head(row{to.t, to.data[h*v.dim*to.t.Bytes():]}, q, start+r,
			func(key, half int) row {
				page := v.word(pages + key/v.pageSize)
				slot := (2*page+half)*v.pageSize + key%v.pageSize
				group := v.heads / v.kvHeads
				return v.row(v.layer, v.stored, (slot*v.kvHeads+h/group)*v.dim, v.dim)
			})
	}
}

func (v *view) row0(part *row, r int) row {
	if part != nil {
		return *part
	}
	return v.row(v.dst, v.rows, r*v.heads*v.dim, v.heads*v.dim)
}

func (v *view) head(to, q row, position int, at func(key, half int) row) {
	out := make([]float64, v.dim)
	top, total := math.Inf(-1), 0.0
	for key := 0; key <= position; key++ {
		if v.window > 0 && key <= position-v.window && key >= v.sinks {
			continue
		}
		k, score := at(key, 0), 0.0
		for i := range v.dim {
			score += float64(q.get(i)) * float64(k.get(i))
		}
		score *= float64(v.scale)
		if v.cap > 0 {
			score = float64(v.cap) * math.Tanh(score/float64(v.cap))
		}
		larger := max(top, score)
		shrink, weight := math.Exp(top-larger), math.Exp(score-larger)
		top, total = larger, total*shrink+weight
		value := at(key, 1)
		for i := range out {
			out[i] = out[i]*shrink + weight*float64(value.get(i))
		}
	}
	for i := range out {
		to.set(i, float32(out[i]/total))
	}
}
