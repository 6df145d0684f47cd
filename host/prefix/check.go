package prefix

import (
	"fmt"
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
)

// Check verifies the invariants of the package comment and that the counts are true.
func (c *Cache) Check() error {
	seen := Counts{Evicted: c.counts.Evicted}
	var walk func(parent *node) error
	walk = func(parent *node) error {
		var before []int32
		for _, n := range *c.children(parent) {
			if err := c.checkNode(n, parent); err != nil {
				return err
			}
			if before != nil && slices.Compare(before, n.tokens) >= 0 {
				return fmt.Errorf("prefix: page %d is out of order below its parent", n.page)
			}
			before = n.tokens
			c.tally(n, &seen)
			if err := walk(n); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(nil); err != nil {
		return err
	}
	if seen != c.counts {
		return fmt.Errorf("prefix: counts are %+v, recounted %+v", c.counts, seen)
	}
	if c.budget >= 0 && seen.Evictable > c.budget {
		return fmt.Errorf("prefix: %d unreferenced pages over a budget of %d",
			seen.Evictable, c.budget)
	}
	return c.checkHeap()
}

// checkNode verifies one node against its parent.
func (c *Cache) checkNode(n, parent *node) error {
	depth := 0
	if parent != nil {
		depth = parent.depth + 1
	}
	switch {
	case n.parent != parent || n.depth != depth || n.paths < 0:
		return fmt.Errorf("prefix: page %d hangs at depth %d and names %d, %d paths end there",
			n.page, depth, n.depth, n.paths)
	case len(n.tokens) == 0 || len(n.tokens) < c.pageSize && len(n.children) > 0:
		return fmt.Errorf("prefix: page %d has %d tokens and %d children",
			n.page, len(n.tokens), len(n.children))
	case c.evictable(n) != (n.heapAt >= 0):
		return fmt.Errorf("prefix: page %d: evictable %t, heap index %d",
			n.page, c.evictable(n), n.heapAt)
	case n.page == kvcache.None:
		return c.checkHollow(n)
	case !c.pool.Kept(n.page) || c.byPage[n.page] != n:
		return fmt.Errorf("prefix: page %d is in the tree and the pool does not keep it", n.page)
	case parent == nil || c.window > 0:
		return nil
	case c.pool.Refs(n.page) > 0 && c.pool.Refs(parent.page) == 0:
		return fmt.Errorf("prefix: page %d is referenced and its parent %d is not",
			n.page, parent.page)
	case n.pins > 0 && parent.pins == 0:
		return fmt.Errorf("prefix: page %d is pinned and its parent %d is not", n.page, parent.page)
	}
	return nil
}

// checkHollow verifies a node without a page.
func (c *Cache) checkHollow(n *node) error {
	if c.window == 0 || bare(n) || n.pins > 0 || len(n.tokens) < c.pageSize {
		return fmt.Errorf("prefix: a hollow node of %d tokens at depth %d with %d children, "+
			"%d paths and %d pins under a window of %d",
			len(n.tokens), n.depth, len(n.children), n.paths, n.pins, c.window)
	}
	return nil
}

func (c *Cache) tally(n *node, seen *Counts) {
	if n.page == kvcache.None {
		seen.Hollow++
		return
	}
	pinned, idle := n.pins > 0, c.pool.Refs(n.page) == 0
	seen.Pages++
	switch {
	case pinned && idle:
		seen.PinnedIdle++
	case idle:
		seen.Evictable++
	}
	if pinned {
		seen.Pinned++
	}
}

func (c *Cache) checkHeap() error {
	for i, n := range c.idle {
		if n.heapAt != i {
			return fmt.Errorf("prefix: page %d is at %d in the heap, not %d", n.page, i, n.heapAt)
		}
		if i > 0 && c.heapLess(i, (i-1)/2) {
			return fmt.Errorf("prefix: heap out of order at %d", i)
		}
	}
	return nil
}

// Walk visits every page in the tree with the tokens before it and its own, parents first; first is
// where its own begin. A hollow node is passed with kvcache.None. The tokens are valid until visit
// returns.
func (c *Cache) Walk(visit func(tokens []int32, first int, page kvcache.PageID)) {
	var path []int32
	var walk func(nodes []*node)
	walk = func(nodes []*node) {
		for _, n := range nodes {
			first := len(path)
			path = append(path, n.tokens...)
			visit(path, first, n.page)
			walk(n.children)
			path = path[:first]
		}
	}
	walk(c.roots)
}
