package model

import (
	"fmt"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// check refuses a batch that would reach outside the vocabulary, the context or the pool. The
// device looks again, but by then a part would be computed.
func (m *Model) check(b *batch.Batch) error {
	if m.kv == nil {
		return fmt.Errorf("no page pool yet: call NewKV first")
	}
	if rows := b.Rows(); rows > m.options.rows() {
		return fmt.Errorf("%d rows, the budget is %d", rows, m.options.rows())
	}
	for _, c := range b.Copies {
		if !m.hasPage(int(c.From)) || !m.hasPage(int(c.To)) ||
			c.Tokens < 0 || c.Tokens > m.kv.PageSize() {
			return fmt.Errorf("copy %d tokens of page %d to page %d in a pool of %d pages of %d",
				c.Tokens, c.From, c.To, m.kv.Pages(), m.kv.PageSize())
		}
	}
	for i := range b.Items {
		if err := m.checkItem(&b.Items[i]); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

func (m *Model) hasPage(page int) bool { return page >= 0 && page < m.kv.Pages() }

func (m *Model) checkItem(item *batch.Item) error {
	c := &m.weights.blueprint.Config
	rows := len(item.Tokens)
	switch {
	case rows == 0:
		return fmt.Errorf("no tokens")
	case item.Start < 0 || item.Start > c.Context-rows:
		return fmt.Errorf("positions [%d, %d) in a context of %d",
			item.Start, item.Start+rows, c.Context)
	case item.Start+rows > len(item.Pages)*m.kv.PageSize():
		return fmt.Errorf("positions [%d, %d) on %d pages of %d",
			item.Start, item.Start+rows, len(item.Pages), m.kv.PageSize())
	case item.Logits < 0 || item.Logits > rows:
		return fmt.Errorf("logits of %d of %d rows", item.Logits, rows)
	}
	if err := c.checkTokens(item); err != nil {
		return err
	}
	for k, p := range item.Pages {
		if p == kvcache.None && c.slidOut(item.Start, k*m.kv.PageSize(), m.kv.PageSize()) {
			continue
		}
		if !m.hasPage(int(p)) {
			return fmt.Errorf("page %d in a pool of %d", p, m.kv.Pages())
		}
	}
	return nil
}

// checkTokens refuses a row that is neither a token of the vocabulary nor a vector.
func (c *Config) checkTokens(item *batch.Item) error {
	row := 0
	tokens := func(to int) error {
		for _, t := range item.Tokens[row:to] {
			if t < 0 || int(t) >= c.Vocabulary {
				return fmt.Errorf("token %d in a vocabulary of %d", t, c.Vocabulary)
			}
		}
		return nil
	}
	for i := range item.Embeds {
		e := &item.Embeds[i]
		first := e.Start - item.Start
		if first < row || e.Rows < 1 || e.Rows > len(item.Tokens)-first {
			return fmt.Errorf("vectors for positions [%d, %d) among [%d, %d)",
				e.Start, e.End(), item.Start+row, item.Start+len(item.Tokens))
		}
		if len(e.Values) != e.Rows*c.Hidden {
			return fmt.Errorf("%d vectors in %d numbers, the hidden state has %d",
				e.Rows, len(e.Values), c.Hidden)
		}
		if err := tokens(first); err != nil {
			return err
		}
		row = first + e.Rows
	}
	return tokens(len(item.Tokens))
}

// slidOut says whether no layer shows the token at position, or one after it, any of the keys from
// first on that are in one page.
func (c *Config) slidOut(position, first, pageSize int) bool {
	return c.UniformWindow && first >= c.Sinks && first+pageSize-1 <= position-c.Window
}
