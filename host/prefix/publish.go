package prefix

import (
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
)

// Publish makes the KV of tokens matchable. It belongs to a sequence with this page table, is in
// its pages, and reaches past path, which moves on.
//
// Where the tree holds the same tokens already on another page, the sequence takes that page into
// its table instead of its own if share allows, because one page is enough for both. Without share
// (somebody outside reads or writes by the table) publishing ends there.
func (c *Cache) Publish(path *Path, tokens []int32, pages []kvcache.PageID, share bool) {
	if c.Off() {
		return
	}
	for path.tokens < len(tokens) {
		k := path.tokens / c.pageSize
		pins := 0
		if path.tokens%c.pageSize != 0 {
			pins = c.unpublish(path, pages[k])
		}
		start := k * c.pageSize
		content := tokens[start:min(start+c.pageSize, len(tokens))]
		at, _ := c.find(path.last(), content)
		twin := c.covering(path.last(), at, content)
		switch {
		case twin == kvcache.None:
			at = c.absorb(path.last(), at, content)
			c.insert(path.last(), at, pages[k], content)
			c.pin(pages[k], pins)
			*path = Path{node: pages[k], tokens: start + len(content)}
		case len(content) == c.pageSize && share:
			c.pin(twin, pins)
			c.retain(twin)
			c.pool.Release(pages[k])
			pages[k] = twin
			*path = Path{node: twin, tokens: start + len(content)}
		default:
			c.pin(twin, pins)
			return
		}
	}
}

// unpublish takes the sequence's own partial page out of the tree, to be put back with more tokens.
// It returns the node's pins.
func (c *Cache) unpublish(path *Path, page kvcache.PageID) (pins int) {
	n := &c.nodes[page]
	pins = n.pins
	c.pin(page, -pins)
	parent, start := n.parent, path.tokens-path.tokens%c.pageSize
	c.remove(page)
	*path = Path{node: parent, tokens: start}
	return pins
}

// covering returns the child whose tokens start with content, or None. at is where find puts
// content.
func (c *Cache) covering(parent kvcache.PageID, at int, content []int32) kvcache.PageID {
	siblings := *c.children(parent)
	if at < len(siblings) && shared(c.nodes[siblings[at]].tokens, content) == len(content) {
		return siblings[at]
	}
	return kvcache.None
}

// absorb drops the sibling before at if it holds but the start of content and nobody needs it: what
// is about to be inserted says all that it says. It returns where content belongs then.
func (c *Cache) absorb(parent kvcache.PageID, at int, content []int32) int {
	if at == 0 {
		return 0
	}
	before := (*c.children(parent))[at-1]
	held := c.nodes[before].tokens
	if !c.takeable(before) || shared(held, content) < len(held) {
		return at
	}
	c.remove(before)
	return at - 1
}

// insert makes a held page a node.
func (c *Cache) insert(parent kvcache.PageID, at int, page kvcache.PageID, content []int32) {
	n := &c.nodes[page]
	n.tokens = append(n.tokens[:0], content...)
	n.parent, n.stamp = parent, c.clock
	siblings := c.children(parent)
	*siblings = slices.Insert(*siblings, at, page)
	c.pool.Keep(page)
	c.counts.Pages++
}

// remove takes a leaf out of the tree; unreferenced, its page is free.
func (c *Cache) remove(page kvcache.PageID) {
	n := &c.nodes[page]
	siblings := c.children(n.parent)
	at, _ := c.find(n.parent, n.tokens)
	*siblings = slices.Delete(*siblings, at, at+1)
	if c.pool.Refs(page) == 0 {
		c.busy(page)
	}
	if n.parent != kvcache.None {
		c.offer(n.parent)
	}
	n.tokens, n.parent = n.tokens[:0], kvcache.None
	c.pool.Forget(page)
	c.counts.Pages--
}

// Pin keeps the pages that hold these tokens in the tree until Reset. It reports whether all of
// them were there.
func (c *Cache) Pin(tokens []int32) bool {
	parent := kvcache.None
	for start := 0; start < len(tokens); start += c.pageSize {
		content := tokens[start:min(start+c.pageSize, len(tokens))]
		at, _ := c.find(parent, content)
		page := c.covering(parent, at, content)
		if page == kvcache.None {
			return false
		}
		c.pin(page, 1)
		parent = page
	}
	return true
}

// pin changes a node's pins by so many.
func (c *Cache) pin(page kvcache.PageID, by int) {
	n := &c.nodes[page]
	before := n.pins > 0
	after := n.pins+by > 0
	if before == after {
		n.pins += by
		return
	}
	unreferenced := c.pool.Refs(page) == 0
	if unreferenced {
		c.busy(page)
	}
	n.pins += by
	if after {
		c.counts.Pinned++
	} else {
		c.counts.Pinned--
	}
	if unreferenced {
		c.rest(page)
	}
}

// Reset unpins everything and forgets all that no sequence references.
func (c *Cache) Reset() {
	for i := range c.nodes {
		c.pin(kvcache.PageID(i), -c.nodes[i].pins)
	}
	c.evict(c.counts.Evictable)
}
