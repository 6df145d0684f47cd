package model

import (
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/batch"
)

// embed fills the residual stream: the tokens of all items are looked up at once, and what comes as
// vectors is placed as it is, without the scale that some families give their table's rows.
func (p *pass) embed() {
	s := p.s
	if len(s.vectorRows) == 0 {
		p.lookUp(p.hidden, s.tokens)
		return
	}
	// Each row is added to negative zeros, which leave every number as it is, zeros included.
	width := p.config.Hidden
	s.zeros = slices.Grow(s.zeros[:0], p.rows*width)[:p.rows*width]
	for i := range s.zeros {
		s.zeros[i] = float32(math.Copysign(0, -1))
	}
	p.do("clear", p.device.Write(p.hidden, s.zeros))
	if len(s.tokenRows) > 0 {
		p.lookUp(s.x, s.tokens)
		p.place(s.x, s.tokenRows)
	}
	p.do("copy vectors", p.device.Write(s.narrow, s.vectors))
	p.place(s.narrow, s.vectorRows)
}

func (p *pass) lookUp(dst gpu.Buffer, tokens []int32) {
	w := p.weights
	p.do("embed", p.device.Embed(dst, w.embedding, tokens, w.blueprint.embedScale))
}

// place adds rows of x to those of the residual stream.
func (p *pass) place(x gpu.Buffer, rows []int32) {
	s := p.s
	s.ones = s.ones[:0]
	for range rows {
		s.ones = append(s.ones, 1)
	}
	p.do("place", p.device.AddRows(gpu.AddRowsArgs{Dst: p.hidden, X: x, Rows: rows,
		Factors: s.ones, Width: p.config.Hidden}))
}

// addRows takes an item's tokens and vectors over. Without vectors in the batch tokenRows stays
// empty, for every row is a token's.
func (s *scratch) addRows(item *batch.Item, first int, mixed bool) {
	row := 0
	tokens := func(to int) {
		s.tokens = append(s.tokens, item.Tokens[row:to]...)
		for ; mixed && row < to; row++ {
			s.tokenRows = append(s.tokenRows, int32(first+row))
		}
	}
	for i := range item.Embeds {
		e := &item.Embeds[i]
		tokens(e.Start - item.Start)
		s.vectors = append(s.vectors, e.Values...)
		for row = e.Start - item.Start; row < e.End()-item.Start; row++ {
			s.vectorRows = append(s.vectorRows, int32(first+row))
		}
	}
	tokens(len(item.Tokens))
}

// mixed reports whether some rows of a batch come as vectors.
func mixed(b *batch.Batch) bool {
	return slices.ContainsFunc(b.Items, func(i batch.Item) bool { return len(i.Embeds) > 0 })
}
