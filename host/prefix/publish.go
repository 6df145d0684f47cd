package prefix

import (
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
)

// Publish makes the KV of tokens matchable. It belongs to a sequence with this page table, is in
// its pages, and reaches past path, which moves on. Where the table holds None the KV has slid out,
// and only the tokens become known.
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
		switch {
		case path.tokens%c.pageSize == 0:
		case pages[k] == kvcache.None: // It was filled, and slid out at once.
			c.Rewind(path, k*c.pageSize)
		default:
			pins = c.unpublish(path)
		}
		start := k * c.pageSize
		content := tokens[start:min(start+c.pageSize, len(tokens))]
		full := len(content) == c.pageSize
		at, _ := c.find(path.node, content)
		twin := c.covering(path.node, at, content)
		hollow := twin != nil && twin.page == kvcache.None
		switch {
		case twin != nil && pages[k] == kvcache.None: // Known already.
		case hollow && full:
			c.fill(twin, pages[k])
		case twin == nil || hollow:
			if pages[k] != kvcache.None {
				at = c.absorb(path.node, at, content)
			}
			twin = c.insert(path.node, at, pages[k], content)
		case full && share:
			c.retain(twin)
			c.pool.Release(pages[k])
			pages[k] = twin.page
		default:
			c.pin(twin, pins)
			return
		}
		c.pin(twin, pins)
		c.move(path, twin, start+len(content))
	}
	c.trim()
}

// move sets a path to a child of its node.
func (c *Cache) move(path *Path, to *node, tokens int) {
	to.paths++
	if path.node != nil {
		path.node.paths--
	}
	*path = Path{node: to, tokens: tokens}
}

// Rewind moves a path back to so many tokens, a multiple of a page.
func (c *Cache) Rewind(path *Path, tokens int) {
	from := path.node
	if path.tokens <= tokens {
		return
	}
	for path.tokens > tokens {
		path.tokens = (path.tokens - 1) / c.pageSize * c.pageSize
		path.node = path.node.parent
	}
	if path.node != nil {
		path.node.paths++
	}
	c.leave(from)
}

// leave ends a path at a node, which goes if it is hollow and nobody needs it any more.
func (c *Cache) leave(n *node) {
	n.paths--
	if bare(n) {
		c.remove(n)
	}
}

// bare reports whether a node is of no use.
func bare(n *node) bool {
	return n.page == kvcache.None && len(n.children) == 0 && n.paths == 0
}

// unpublish takes the sequence's own partial page out of the tree, to be put back with more tokens.
// It returns the node's pins.
func (c *Cache) unpublish(path *Path) (pins int) {
	n := path.node
	pins = n.pins
	c.pin(n, -pins)
	n.paths--
	if n.parent != nil {
		n.parent.paths++
	}
	*path = Path{node: n.parent, tokens: path.tokens - path.tokens%c.pageSize}
	c.remove(n)
	return pins
}

// covering returns the child whose tokens start with content, one with a page if there is one, or
// nil. at is where find puts content.
func (c *Cache) covering(parent *node, at int, content []int32) (best *node) {
	for _, n := range (*c.children(parent))[at:] {
		if shared(n.tokens, content) < len(content) {
			break
		}
		if n.page != kvcache.None {
			return n
		}
		if best == nil {
			best = n
		}
	}
	return best
}

// absorb drops the sibling before at if it holds but the start of content and nobody needs it: what
// is about to be inserted says all that it says. It returns where content belongs then.
func (c *Cache) absorb(parent *node, at int, content []int32) int {
	if at == 0 {
		return 0
	}
	before := (*c.children(parent))[at-1]
	if !c.takeable(before) || shared(before.tokens, content) < len(before.tokens) {
		return at
	}
	c.remove(before)
	return at - 1
}

// insert makes a node of a held page, or a hollow one of None.
func (c *Cache) insert(parent *node, at int, page kvcache.PageID, content []int32) *node {
	if len(c.unused) == 0 {
		c.grow(len(c.byPage))
	}
	n := c.unused[len(c.unused)-1]
	c.unused = c.unused[:len(c.unused)-1]
	n.tokens = append(n.tokens[:0], content...)
	n.parent, n.depth, n.stamp = parent, 0, c.clock
	if parent != nil {
		n.depth = parent.depth + 1
	}
	siblings := c.children(parent)
	*siblings = slices.Insert(*siblings, at, n)
	c.counts.Hollow++
	if page != kvcache.None {
		c.fill(n, page)
	}
	return n
}

// fill gives a hollow node a held page with its KV.
func (c *Cache) fill(n *node, page kvcache.PageID) {
	n.page, n.stamp = page, c.clock
	c.byPage[page] = n
	c.pool.Keep(page)
	c.counts.Pages++
	c.counts.Hollow--
}

// unpage takes a node's page out of the tree; unreferenced, the page is free.
func (c *Cache) unpage(n *node) {
	page := n.page
	if c.pool.Refs(page) == 0 {
		c.busy(n)
	}
	n.page, c.byPage[page] = kvcache.None, nil
	c.pool.Forget(page)
	c.counts.Pages--
}

// remove takes a leaf out of the tree, and the hollow nodes that only led to it.
func (c *Cache) remove(n *node) {
	for {
		parent := n.parent
		siblings := c.children(parent)
		at, _ := c.find(parent, n.tokens)
		*siblings = slices.Delete(*siblings, at, at+1)
		if n.page != kvcache.None {
			c.unpage(n)
		} else {
			c.counts.Hollow--
		}
		n.tokens, n.parent = n.tokens[:0], nil
		c.unused = append(c.unused, n)
		if parent == nil {
			return
		}
		if !bare(parent) {
			c.offer(parent)
			return
		}
		n = parent
	}
}

// Slide gives back pages [from, to) of a table, which slid out of the window: the table holds None
// for them from now on. Those from index own on leave the tree with their last reference, because
// no later position of this prompt sees them; those before were matched and may be again.
func (c *Cache) Slide(pages []kvcache.PageID, from, to, own int) {
	for k := from; k < to; k++ {
		page := pages[k]
		pages[k] = kvcache.None
		if page == kvcache.None {
			continue
		}
		c.release(page, c.clock)
		if n := c.byPage[page]; k >= own && n != nil && n.pins == 0 && c.pool.Refs(page) == 0 {
			c.lose(n)
		}
	}
	c.trim()
}

// Pin keeps the pages that the token after these sees, or the last of them, in the tree until
// Reset. It reports whether all of them were there.
func (c *Cache) Pin(tokens []int32) bool {
	var parent *node
	all, first := true, c.first(max(len(tokens)-1, 0))
	for k := 0; k*c.pageSize < len(tokens); k++ {
		start := k * c.pageSize
		content := tokens[start:min(start+c.pageSize, len(tokens))]
		at, _ := c.find(parent, content)
		n := c.covering(parent, at, content)
		if n == nil {
			return false
		}
		parent = n
		switch {
		case k < first && k >= c.sinkPages:
		case n.page == kvcache.None:
			all = false
		default:
			c.pin(n, 1)
		}
	}
	return all
}

// pin changes a node's pins by so many.
func (c *Cache) pin(n *node, by int) {
	before := n.pins > 0
	after := n.pins+by > 0
	if before == after {
		n.pins += by
		return
	}
	unreferenced := c.pool.Refs(n.page) == 0
	if unreferenced {
		c.busy(n)
	}
	n.pins += by
	if after {
		c.counts.Pinned++
	} else {
		c.counts.Pinned--
	}
	if unreferenced {
		c.rest(n)
	}
}

// Reset unpins everything and forgets all that no sequence references.
func (c *Cache) Reset() {
	for _, n := range c.byPage {
		if n != nil {
			c.pin(n, -n.pins)
		}
	}
	c.evict(c.counts.Evictable)
}
