package prefix

import (
	"fmt"
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
)

// Check verifies the invariants of the package comment and that the counts are true.
func (c *Cache) Check() error {
	seen := Counts{Evicted: c.counts.Evicted}
	var walk func(parent kvcache.PageID) error
	walk = func(parent kvcache.PageID) error {
		var before []int32
		for _, page := range *c.children(parent) {
			n := &c.nodes[page]
			if err := c.checkNode(page, parent); err != nil {
				return err
			}
			if before != nil && slices.Compare(before, n.tokens) >= 0 {
				return fmt.Errorf("prefix: page %d is out of order below %d", page, parent)
			}
			before = n.tokens
			c.tally(page, &seen)
			if err := walk(page); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(kvcache.None); err != nil {
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
func (c *Cache) checkNode(page, parent kvcache.PageID) error {
	n := &c.nodes[page]
	refs := c.pool.Refs(page)
	switch {
	case n.parent != parent:
		return fmt.Errorf("prefix: page %d hangs below %d and names %d", page, parent, n.parent)
	case !c.pool.Kept(page):
		return fmt.Errorf("prefix: page %d is in the tree and the pool does not keep it", page)
	case len(n.tokens) == 0 || len(n.tokens) < c.pageSize && len(n.children) > 0:
		return fmt.Errorf("prefix: page %d has %d tokens and %d children",
			page, len(n.tokens), len(n.children))
	case parent != kvcache.None && refs > 0 && c.pool.Refs(parent) == 0:
		return fmt.Errorf("prefix: page %d is referenced and its parent %d is not", page, parent)
	case parent != kvcache.None && n.pins > 0 && c.nodes[parent].pins == 0:
		return fmt.Errorf("prefix: page %d is pinned and its parent %d is not", page, parent)
	case c.takeable(page) != (n.heapAt >= 0):
		return fmt.Errorf("prefix: page %d: evictable leaf %t, heap index %d",
			page, c.takeable(page), n.heapAt)
	}
	return nil
}

func (c *Cache) tally(page kvcache.PageID, seen *Counts) {
	pinned, idle := c.nodes[page].pins > 0, c.pool.Refs(page) == 0
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
	for i, page := range c.idle {
		if c.nodes[page].heapAt != i {
			return fmt.Errorf("prefix: page %d is at %d in the heap, not %d",
				page, i, c.nodes[page].heapAt)
		}
		if i > 0 && c.heapLess(i, (i-1)/2) {
			return fmt.Errorf("prefix: heap out of order at %d", i)
		}
	}
	return nil
}
