package prefix

import "github.com/kvrelay/engine/host/kvcache"

// Fate is what becomes of a sequence's pages when it gives them back.
type Fate uint8

// Fates.
const (
	// Keep leaves them in the tree, as the most recently used.
	Keep Fate = iota
	// Demote leaves them in the tree, first in line for eviction.
	Demote
	// Drop takes those out of the tree that nobody else references and no other branch needs.
	Drop
)

// longAgo is taken off the stamp of demoted pages: among themselves they keep their order.
const longAgo = int64(1) << 62

// Release gives back the references of a page table, None in it being nothing, and ends its path.
// With Drop only pages from index own on leave the tree: those before were matched, so they are not
// this sequence's to drop.
func (c *Cache) Release(path Path, pages []kvcache.PageID, fate Fate, own int) {
	c.clock++
	if path.node != nil {
		c.leave(path.node)
	}
	for i := len(pages) - 1; i >= 0; i-- { // Leaves first, so that Drop finds leaves only.
		page, stamp := pages[i], c.clock
		if page == kvcache.None {
			continue
		}
		if fate == Demote && i >= c.sinkPages { // Without the sinks nothing else would match.
			stamp -= longAgo
		}
		c.release(page, stamp)
		if fate == Drop && i >= own && c.pool.Kept(page) && c.takeable(c.byPage[page]) {
			c.remove(c.byPage[page])
		}
	}
	c.trim()
}

// trim evicts what is over the budget, and what keeps too many hollow nodes.
func (c *Cache) trim() {
	if c.budget >= 0 && c.counts.Evictable > c.budget {
		c.evict(c.counts.Evictable - c.budget)
	}
	for c.counts.Hollow > hollowPerPage*len(c.byPage) && len(c.idle) > 0 {
		c.evict(1)
	}
}

// Reserve makes sure that so many pages are free, evicting only what is missing, the least recently
// used leaf first. It reports false, and evicts nothing, where that is not possible.
func (c *Cache) Reserve(pages int) bool {
	if pages > c.Available() {
		return false
	}
	c.evict(pages - c.pool.Free())
	return true
}

func (c *Cache) evict(pages int) {
	for range pages {
		c.lose(c.idle[0])
		c.counts.Evicted++
	}
}

// lose frees an evictable page. Its node stays, hollow, where others hang on it.
func (c *Cache) lose(n *node) {
	if len(n.children) == 0 && n.paths == 0 {
		c.remove(n)
		return
	}
	c.unpage(n)
	c.counts.Hollow++
}

// retain references a page of the tree.
func (c *Cache) retain(n *node) {
	if c.pool.Refs(n.page) == 0 {
		c.busy(n)
	}
	c.pool.Retain(n.page)
	n.stamp = c.clock
}

// touch says that a page is of use, without referencing it.
func (c *Cache) touch(n *node) {
	n.stamp = c.clock
	if n.heapAt >= 0 {
		c.heapDown(n.heapAt)
	}
}

// release drops a reference; the last one lets the page rest in the tree if it is there.
func (c *Cache) release(page kvcache.PageID, stamp int64) {
	if c.pool.Release(page) > 0 || !c.pool.Kept(page) {
		return
	}
	n := c.byPage[page]
	n.stamp = stamp
	c.rest(n)
}

// rest counts a page that lost its last reference.
func (c *Cache) rest(n *node) {
	if n.pins > 0 {
		c.counts.PinnedIdle++
		return
	}
	c.counts.Evictable++
	c.offer(n)
}

// busy undoes rest: the page is about to be referenced, pinned otherwise or removed.
func (c *Cache) busy(n *node) {
	if n.pins > 0 {
		c.counts.PinnedIdle--
		return
	}
	c.counts.Evictable--
	if n.heapAt >= 0 {
		c.heapRemove(n.heapAt)
	}
}

// evictable reports whether a page may be the next to go.
func (c *Cache) evictable(n *node) bool {
	return n.page != kvcache.None && n.pins == 0 && c.pool.Refs(n.page) == 0 &&
		(c.window > 0 || len(n.children) == 0)
}

// offer puts a node into the heap of evictable pages if it is one.
func (c *Cache) offer(n *node) {
	if c.evictable(n) && n.heapAt < 0 {
		c.idle = append(c.idle, n)
		n.heapAt = len(c.idle) - 1
		c.heapUp(len(c.idle) - 1)
	}
}

// heapLess orders by last use, and leaves before what they hang on; the page only breaks ties, so
// that runs repeat.
func (c *Cache) heapLess(i, j int) bool {
	a, b := c.idle[i], c.idle[j]
	switch {
	case a.stamp != b.stamp:
		return a.stamp < b.stamp
	case a.depth != b.depth:
		return a.depth > b.depth
	}
	return a.page < b.page
}

func (c *Cache) heapSwap(i, j int) {
	c.idle[i], c.idle[j] = c.idle[j], c.idle[i]
	c.idle[i].heapAt = i
	c.idle[j].heapAt = j
}

func (c *Cache) heapUp(i int) {
	for i > 0 && c.heapLess(i, (i-1)/2) {
		c.heapSwap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (c *Cache) heapDown(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(c.idle); child++ {
			if c.heapLess(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		c.heapSwap(i, least)
		i = least
	}
}

func (c *Cache) heapRemove(i int) {
	last := len(c.idle) - 1
	c.idle[i].heapAt = -1
	if i != last {
		c.idle[i] = c.idle[last]
		c.idle[i].heapAt = i
	}
	c.idle = c.idle[:last]
	if i < last {
		c.heapDown(i)
		c.heapUp(i)
	}
}
