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

// Release gives back the references of a page table. With Drop only pages from index own on leave
// the tree: those before were matched, so they are not this sequence's to drop.
func (c *Cache) Release(pages []kvcache.PageID, fate Fate, own int) {
	c.clock++
	stamp := c.clock
	if fate == Demote {
		stamp -= longAgo
	}
	for i := len(pages) - 1; i >= 0; i-- { // Leaves first, so that Drop finds leaves only.
		page := pages[i]
		c.release(page, stamp)
		if fate == Drop && i >= own && c.pool.Kept(page) && c.takeable(page) {
			c.remove(page)
		}
	}
	c.trim()
}

// trim evicts what is over the budget.
func (c *Cache) trim() {
	if c.budget >= 0 && c.counts.Evictable > c.budget {
		c.evict(c.counts.Evictable - c.budget)
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
		c.remove(c.idle[0])
		c.counts.Evicted++
	}
}

// retain references a page of the tree.
func (c *Cache) retain(page kvcache.PageID) {
	if c.pool.Refs(page) == 0 {
		c.busy(page)
	}
	c.pool.Retain(page)
	c.nodes[page].stamp = c.clock
}

// release drops a reference; the last one lets the page rest in the tree if it is there.
func (c *Cache) release(page kvcache.PageID, stamp int64) {
	if c.pool.Release(page) > 0 || !c.pool.Kept(page) {
		return
	}
	c.nodes[page].stamp = stamp
	c.rest(page)
}

// rest counts a page that lost its last reference.
func (c *Cache) rest(page kvcache.PageID) {
	if c.nodes[page].pins > 0 {
		c.counts.PinnedIdle++
		return
	}
	c.counts.Evictable++
	c.offer(page)
}

// busy undoes rest: the page is about to be referenced, pinned otherwise or removed.
func (c *Cache) busy(page kvcache.PageID) {
	if c.nodes[page].pins > 0 {
		c.counts.PinnedIdle--
		return
	}
	c.counts.Evictable--
	if at := c.nodes[page].heapAt; at >= 0 {
		c.heapRemove(at)
	}
}

// offer puts a node into the heap of evictable leaves if it is one.
func (c *Cache) offer(page kvcache.PageID) {
	if c.takeable(page) && c.nodes[page].heapAt < 0 {
		c.idle = append(c.idle, page)
		c.nodes[page].heapAt = len(c.idle) - 1
		c.heapUp(len(c.idle) - 1)
	}
}

// heapLess orders by last use; the page only breaks ties, so that runs repeat.
func (c *Cache) heapLess(i, j int) bool {
	a, b := c.idle[i], c.idle[j]
	if c.nodes[a].stamp != c.nodes[b].stamp {
		return c.nodes[a].stamp < c.nodes[b].stamp
	}
	return a < b
}

func (c *Cache) heapSwap(i, j int) {
	c.idle[i], c.idle[j] = c.idle[j], c.idle[i]
	c.nodes[c.idle[i]].heapAt = i
	c.nodes[c.idle[j]].heapAt = j
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
	c.nodes[c.idle[i]].heapAt = -1
	if i != last {
		c.idle[i] = c.idle[last]
		c.nodes[c.idle[i]].heapAt = i
	}
	c.idle = c.idle[:last]
	if i < last {
		c.heapDown(i)
		c.heapUp(i)
	}
}
