package fake

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/kvrelay/engine/gpu"
)

// twins are the kernels by their families' names; the longest name that fits wins.
var twins = map[string]func(*call){
	"embed": embed, "norm_row": norm, "norm_head": norm, "rope_append": ropeAppend, "glu": glu,
	"gather": gather, "add_rows": addRows, "bias_rows": biasRows, "from_float": fromFloat,
	"to_float": toFloat, "rope_table": ropeTable, "kv_copy": copyPages, "kv_pack": packPages,
	"kv_unpack": unpackPages, "attend_any": attendAny, "attend_prefill": attendPrefill,
	"attend_decode": attendDecode, "attend_combine": attendCombine, "argmax": argmax, "top_k": topK,
}

// twin finds the twin of a kernel. One without cannot be launched.
func twin(name string) func(*call) {
	best := ""
	for family := range twins {
		if strings.HasPrefix(name, family) && len(family) > len(best) {
			best = family
		}
	}
	if best == "" {
		return func(*call) { panic(broken(launchFailed)) }
	}
	return twins[best]
}

func embed(c *call) {
	a, dst, table, t := c.named(), c.ptr(), c.ptr(), c.dtype()
	tokens := c.ints(c.ptr(), int(c.grid[0]))
	width, scale := c.int(), c.float()
	for r, token := range tokens {
		from, to := c.row(table, t, int(token)*width, width), c.row(dst, a, r*width, width)
		for i := range width {
			to.set(i, from.get(i)*scale)
		}
	}
}

func norm(c *call) {
	a := c.named()
	dst, x, add, weights := c.ptr(), c.ptr(), c.ptr(), c.ptr()
	dim, groups, stride, offset := c.int(), c.int(), c.int(), c.int()
	eps, plus, accumulate, vectors := c.float(), c.float(), c.int() == 1, c.int()
	w := c.row(weights, a, 0, dim)
	for v := range vectors {
		at := v/groups*stride + offset + v%groups*dim
		from, to := c.row(x, a, at, dim), c.row(dst, a, at, dim)
		if add != 0 {
			more := c.row(add, a, at, dim)
			for i := range dim {
				from.set(i, from.get(i)+more.get(i))
			}
		}
		squares := 0.0
		for i := range dim {
			squares += float64(from.get(i)) * float64(from.get(i))
		}
		inverse := float32(1 / math.Sqrt(squares/float64(dim)+float64(eps)))
		for i := range dim {
			y := from.get(i) * inverse * (w.get(i) + plus)
			if accumulate {
				y += to.get(i)
			}
			to.set(i, y)
		}
	}
}

func ropeTable(c *call) {
	table, positions, freqs := c.ptr(), c.ptr(), c.ptr()
	half, scale := c.int(), c.float()
	f := c.bytes(freqs, 8*half)
	for r, position := range c.ints(positions, int(c.grid[0])) {
		to := c.row(table, gpu.F32, 2*r*half, 2*half)
		for i := range half {
			freq := math.Float64frombits(binary.LittleEndian.Uint64(f[8*i:]))
			sin, cos := math.Sincos(float64(position) * freq)
			to.set(2*i, float32(cos)*scale)
			to.set(2*i+1, float32(sin)*scale)
		}
	}
}

func ropeAppend(c *call) {
	a := c.named()
	qkv, layer, stored, table, slots := c.ptr(), c.ptr(), c.dtype(), c.ptr(), c.ptr()
	heads, kvHeads, dim, half, pageSize := c.int(), c.int(), c.int(), c.int(), c.int()
	width, side := (heads+2*kvHeads)*dim, kvHeads*dim
	for r, slot := range c.ints(slots, int(c.grid[0])) {
		row, angles := c.row(qkv, a, r*width, width), c.row(table, gpu.F32, 2*r*half, 2*half)
		for h := range heads + kvHeads {
			for i := range half {
				x, y := row.get(h*dim+i), row.get(h*dim+half+i)
				cos, sin := angles.get(2*i), angles.get(2*i+1)
				row.set(h*dim+i, x*cos-y*sin)
				row.set(h*dim+half+i, y*cos+x*sin)
			}
		}
		page, at := int(slot)/pageSize, int(slot)%pageSize
		keys := c.row(layer, stored, (2*page*pageSize+at)*side, side)
		values := c.row(layer, stored, ((2*page+1)*pageSize+at)*side, side)
		for i := range side {
			keys.set(i, row.get(heads*dim+i))
			values.set(i, row.get(heads*dim+side+i))
		}
	}
}

func glu(c *call) {
	a, dst, src, width, activation := c.named(), c.ptr(), c.ptr(), c.int(), c.int()
	for r := range int(c.grid[0]) {
		both, to := c.row(src, a, 2*r*width, 2*width), c.row(dst, a, r*width, width)
		for i := range width {
			x := float64(both.get(i))
			gated := x / (1 + math.Exp(-x))
			if gpu.Activation(activation) == gpu.GELUTanh {
				gated = x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
			}
			to.set(i, float32(gated)*both.get(width+i))
		}
	}
}

func gather(c *call) {
	a, dst, src, rows, width := c.named(), c.ptr(), c.ptr(), c.ptr(), c.int()
	for i, r := range c.ints(rows, int(c.grid[0])) {
		copy(c.row(dst, a, i*width, width).data, c.row(src, a, int(r)*width, width).data)
	}
}

func addRows(c *call) {
	a, dst, x, rows, factors, width := c.named(), c.ptr(), c.ptr(), c.ptr(), c.ptr(), c.int()
	n := int(c.grid[0])
	weights := c.row(factors, gpu.F32, 0, n)
	for i, r := range c.ints(rows, n) {
		to, from := c.row(dst, a, int(r)*width, width), c.row(x, a, i*width, width)
		for k := range width {
			to.set(k, to.get(k)+from.get(k)*weights.get(i))
		}
	}
}

func biasRows(c *call) {
	a, dst, bias, width := c.named(), c.ptr(), c.ptr(), c.int()
	for r := range int(c.grid[0]) {
		copy(c.row(dst, a, r*width, width).data, c.row(bias, a, 0, width).data)
	}
}

func fromFloat(c *call) { convert(c, gpu.F32, c.named()) }
func toFloat(c *call)   { convert(c, c.named(), gpu.F32) }

func convert(c *call, from, to gpu.DType) {
	dst, src, n := c.ptr(), c.ptr(), c.int()
	x, y := c.row(src, from, 0, n), c.row(dst, to, 0, n)
	for i := range n {
		y.set(i, x.get(i))
	}
}

func copyPages(c *call) {
	pool, copies := c.ptr(), c.ptr()
	layers, pages, pageSize, side := c.int(), c.int(), c.int(), c.int()
	list := c.ints(copies, 4*int(c.grid[0]))
	page := 2 * pageSize * side
	for i := 0; i < len(list); i += 4 {
		from, to, tokens := int(list[i]), int(list[i+1]), int(list[i+2])
		for layer := range layers {
			for half := range 2 {
				at := func(p int) []byte {
					offset := (layer*pages+p)*page + half*pageSize*side
					return c.bytes(pool+uint64(offset), tokens*side)
				}
				copy(at(to), at(from))
			}
		}
	}
}

func packPages(c *call)   { move(c, true) }
func unpackPages(c *call) { move(c, false) }

func move(c *call, pack bool) {
	packed, layer, ranges := c.ptr(), c.ptr(), c.ptr()
	count, pageSize, side := c.int(), c.int(), c.int()
	list := c.ints(ranges, 4*count)
	for i := 0; i < len(list); i += 4 {
		page, first, n, slot := int(list[i]), int(list[i+1]), int(list[i+2]), int(list[i+3])
		for half := range 2 {
			in := c.bytes(layer+uint64(((2*page+half)*pageSize+first)*side), n*side)
			out := c.bytes(packed+uint64((2*slot+half*n)*side), n*side)
			if pack {
				copy(out, in)
			} else {
				copy(in, out)
			}
		}
	}
}
