package gputest

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// layout is the shape of the attention under test.
type layout struct {
	heads, kvHeads, dim int
	rotated             int // dimensions, even, at most dim
	window, sinks       int
	cap                 float32
	pageSize            int
	dtype               gpu.DType // of keys and values
}

func (l layout) width() int { return (l.heads + 2*l.kvHeads) * l.dim }

func (p *pair) layout() layout {
	kvHeads := p.between(1, 3)
	l := layout{heads: kvHeads * p.between(1, 4), kvHeads: kvHeads,
		dim: 2 * p.between(1, 45), pageSize: []int{1, 5, 10, 16, 24, 32, 64, 100}[p.random.IntN(8)]}
	l.dtype = p.stored[p.random.IntN(len(p.stored))]
	if l.dtype.Quantised() {
		l.dim = 32 * p.between(1, 5)
	}
	if p.between(0, 3) == 0 {
		l.cap = float32(p.between(1, 50))
	}
	l.rotated = l.dim
	if p.between(0, 3) == 0 {
		l.rotated = 2 * p.between(1, l.dim/2)
	}
	return l
}

// cache is one pool with a model of one layer on one device.
type cache struct {
	*pair
	layout
	device gpu.Device
	kv     gpu.KV
	rope   *gpu.Rope
}

const poolLayers = 2

func (p *pair) cache(d gpu.Device, l layout, pages int) *cache {
	p.Helper()
	kv, err := d.AllocKV(gpu.KVShape{Layers: poolLayers, Pages: pages, PageSize: l.pageSize,
		KVHeads: l.kvHeads, HeadDim: l.dim, DType: l.dtype})
	p.must(err)
	rope := &gpu.Rope{Scale: 1.1}
	for i := range l.rotated / 2 {
		rope.Freqs = append(rope.Freqs, math.Pow(10000, -2*float64(i)/float64(l.rotated)))
	}
	return &cache{pair: p, layout: l, device: d, kv: kv, rope: rope}
}

// chunk is some rows of one sequence.
type chunk struct {
	start int
	pages []int32
	qkv   []float32
}

// run appends the chunks to layer 1 and attends, all in one call, and returns the attention's rows.
func (c *cache) run(chunks ...chunk) []float32 {
	c.Helper()
	var qkv []float32
	rope := gpu.RopeArgs{KV: c.kv, Layer: 1, Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim,
		Rope: c.rope}
	attention := gpu.AttentionArgs{KV: c.kv, Layer: 1, Heads: c.heads, KVHeads: c.kvHeads,
		HeadDim: c.dim, Scale: 0.3, Window: c.window, Sinks: c.sinks, Cap: c.cap}
	for _, chunk := range chunks {
		rows := len(chunk.qkv) / c.width()
		attention.Sequences = append(attention.Sequences, gpu.AttentionSequence{
			FirstRow: len(rope.Positions), Rows: rows, Start: chunk.start, Pages: chunk.pages})
		for position := chunk.start; position < chunk.start+rows; position++ {
			page := chunk.pages[position/c.pageSize]
			rope.Positions = append(rope.Positions, int32(position))
			rope.Slots = append(rope.Slots, page*int32(c.pageSize)+int32(position%c.pageSize))
		}
		qkv = append(qkv, chunk.qkv...)
	}
	rope.QKV = c.buffer(c.device, qkv)
	c.must(c.device.RopeAppend(rope))
	attention.QKV = rope.QKV
	attention.Dst = c.buffer(c.device, make([]float32, len(rope.Positions)*c.heads*c.dim))
	c.must(c.device.Attention(attention))
	return c.read(c.device, attention.Dst)
}

// part is rows [from, to) of one sequence's qkv.
func (c *cache) part(qkv []float32, pages []int32, from, to int) chunk {
	return chunk{start: from, pages: pages, qkv: qkv[from*c.width() : to*c.width()]}
}

// pagesFor shuffles as many pages as n tokens need out of a pool.
func (p *pair) pagesFor(l layout, n, pool int) []int32 {
	var pages []int32
	for _, page := range p.random.Perm(pool)[:(n+l.pageSize-1)/l.pageSize] {
		pages = append(pages, int32(page))
	}
	return pages
}

func testRopeAppend(p *pair) {
	for range 10 {
		l := p.layout()
		rows := p.between(1, 80)
		pool := rows/l.pageSize + 2
		qkv, pages := p.values(rows*l.width()), p.pagesFor(l, rows, pool)
		p.same(fmt.Sprintf("keys and values %+v", l), func(d gpu.Device) []float32 {
			c := p.cache(d, l, pool)
			c.run(c.part(qkv, pages, 0, rows))
			return c.dump()
		})
	}
}

// dump is all of a pool in the canonical layout.
func (c *cache) dump() []float32 {
	c.Helper()
	shape := c.kv.Shape()
	var out []float32
	data := make([]byte, shape.PageSize*shape.TokenBytes())
	for layer := range shape.Layers {
		for page := range shape.Pages {
			c.must(c.device.PackKV(c.kv,
				gpu.KVRange{Layer: layer, Page: page, Count: shape.PageSize}, data))
			out = append(out, decode(shape.DType, data)...)
		}
	}
	return out
}

func testAttention(p *pair) {
	for i := range 24 {
		l := p.layout()
		rows := p.between(1, 150)
		if i%4 == 0 {
			rows = 1
		}
		pool := rows/l.pageSize + 2
		qkv, pages := p.values(rows*l.width()), p.pagesFor(l, rows, pool)
		p.same(fmt.Sprintf("attention %+v, %d rows", l, rows), func(d gpu.Device) []float32 {
			c := p.cache(d, l, pool)
			return c.run(c.part(qkv, pages, 0, rows))
		})
	}
}

func testMasks(p *pair) {
	for i := range 24 {
		l := p.layout()
		l.window = p.between(1, 90)
		if i%2 == 0 {
			l.sinks = p.between(1, 80)
		}
		rows := p.between(1, 300)
		pool := rows/l.pageSize + 2
		qkv, pages := p.values(rows*l.width()), p.pagesFor(l, rows, pool)
		p.same(fmt.Sprintf("mask %+v, %d rows", l, rows), func(d gpu.Device) []float32 {
			c := p.cache(d, l, pool)
			return c.run(c.part(qkv, pages, 0, rows))
		})
	}
}

// testChunks: cutting a prompt, and sharing the batch with others, changes no bit.
func testChunks(p *pair) {
	for i := range 8 {
		l := p.layout()
		if i%2 == 0 {
			l.window, l.sinks = p.between(1, 70), p.between(0, 9)
		}
		rows := p.between(2, 200)
		pool := 3 * (rows/l.pageSize + 1)
		order := p.pagesFor(l, pool*l.pageSize, pool)
		mine, others := order[:pool/3], order[pool/3:]
		qkv := p.values(rows * l.width())
		c := p.cache(p.device, l, pool)
		whole := c.run(c.part(qkv, mine, 0, rows))
		var pieces []float32
		for from := 0; from < rows; {
			to := min(rows, from+p.between(1, 40))
			n := p.between(1, rows)
			out := c.run(c.part(p.values(n*l.width()), others[:pool/3], 0, n),
				c.part(qkv, mine, from, to), c.part(p.values(l.width()), others[pool/3:], 0, 1))
			pieces = append(pieces, out[n*l.heads*l.dim:][:(to-from)*l.heads*l.dim]...)
			from = to
		}
		if !slices.Equal(whole, pieces) {
			p.Fatalf("%+v: %d rows in pieces differ from the whole", l, rows)
		}
	}
}

// testStaleSlots: what an earlier owner left in a page, even NaNs, does not matter.
func testStaleSlots(p *pair) {
	for range 6 {
		l := p.layout()
		rows := p.between(1, 100)
		pool := rows/l.pageSize + 1
		qkv, pages := p.values(rows*l.width()), p.pagesFor(l, rows, pool)
		clean, dirty := p.cache(p.device, l, pool), p.cache(p.device, l, pool)
		bad := make([]byte, l.pageSize*dirty.kv.Shape().TokenBytes())
		for i := range bad {
			bad[i] = 0xff // every float a NaN
		}
		for page := range pool {
			p.must(p.device.UnpackKV(dirty.kv,
				gpu.KVRange{Layer: 1, Page: page, Count: l.pageSize}, bad))
		}
		half := (rows + 1) / 2
		want := clean.run(clean.part(qkv, pages, 0, half))
		got := dirty.run(dirty.part(qkv, pages, 0, half))
		if !slices.Equal(got, want) {
			p.Fatalf("%+v: stale slots changed %d rows", l, half)
		}
	}
}

// testSlidOut: pages whose keys the window hides may be gone, and somebody else's; what the queries
// see does not change by a bit.
func testSlidOut(p *pair) {
	for i := range 16 {
		l := p.layout()
		l.window, l.sinks = p.between(1, 70), p.between(0, 9)*(i%2)
		if i%4 == 3 {
			l.sinks = p.between(60, 140)
		}
		rows := p.between(100, 300)
		pool := rows/l.pageSize + 1
		qkv, pages := p.values(rows*l.width()), p.pagesFor(l, rows, pool)
		c := p.cache(p.device, l, pool)
		whole := c.run(c.part(qkv, pages, 0, rows))
		bad := bytes.Repeat([]byte{0xff}, l.pageSize*c.kv.Shape().TokenBytes()) // NaNs
		var pieces []float32
		for from := 0; from < rows; {
			for k := (l.sinks + l.pageSize - 1) / l.pageSize; k < len(pages) &&
				(k+1)*l.pageSize <= from-l.window+1; k++ {
				if page := pages[k]; page != gpu.NoPage {
					r := gpu.KVRange{Layer: 1, Page: int(page), Count: l.pageSize}
					p.must(p.device.UnpackKV(c.kv, r, bad))
					pages[k] = gpu.NoPage
				}
			}
			to := min(rows, from+p.between(1, 40))
			pieces = append(pieces, c.run(c.part(qkv, pages, from, to))...)
			from = to
		}
		if !slices.Equal(whole, pieces) {
			p.Fatalf("%+v: %d rows differ once pages slid out", l, rows)
		}
	}
}

// testPages: packed and unpacked pages, and copied ones, hold the same bits and touch no others.
func testPages(p *pair) {
	for range 12 {
		l := p.layout()
		from, to := p.cache(p.device, l, 4), p.cache(p.twin, l, 4)
		rows := min(2*l.pageSize, 90)
		from.run(from.part(p.values(rows*l.width()), []int32{3, 1}, 0, rows))
		r := gpu.KVRange{Layer: 1, Page: 3, First: p.between(0, l.pageSize-1)}
		r.Count = p.between(0, l.pageSize-r.First)
		data := make([]byte, r.Count*from.kv.Shape().TokenBytes())
		p.must(p.device.PackKV(from.kv, r, data))
		p.must(p.twin.UnpackKV(to.kv, r, data))
		back := make([]byte, len(data))
		p.must(p.twin.PackKV(to.kv, r, back))
		if !bytes.Equal(data, back) {
			p.Fatalf("%+v: range %+v changed on its way", l, r)
		}
		again := p.cache(p.device, l, 4)
		p.must(p.device.UnpackKV(again.kv, r, data))
		p.compare("pool with one range", again.dump(), to.dump())
		copies := []gpu.KVCopy{{From: 3, To: 0, Tokens: p.between(0, l.pageSize)}}
		p.must(p.device.CopyKV(again.kv, copies))
		p.must(p.twin.CopyKV(to.kv, copies))
		p.compare("pool after a copy", again.dump(), to.dump())
	}
}
