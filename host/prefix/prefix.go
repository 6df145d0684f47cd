// Package prefix remembers which pages hold the KV of which tokens, so that a prompt need not be
// computed again where another one began alike. It is a radix tree of pages, exact to the token: a
// node is a page and its tokens, a full page or, in a leaf, fewer.
//
// In a model with a window a page that slid out of it leaves a hollow node: its tokens are known,
// so that pages further on are found, and its page is gone. Computing it again fills it.
//
// What always holds:
//
//  1. Without a window a sequence that references a node's page references the pages of all its
//     ancestors, by the page table it has: what is published hangs only below the sequence's own
//     pages. Hence an unreferenced node has unreferenced descendants only, and evicting leaves can
//     free them all. With a window any page can go, because its node can stay.
//  2. No two siblings hold equal tokens; siblings are sorted, so a lookup is a binary search.
//  3. A page that is not full has no children, and only its publisher writes to it.
//  4. Pinned pages are never evicted; without a window their ancestors are pinned.
//  5. A hollow node is full, and has children or a path that ends in it.
//
// Callers reference pages through Match and Publish and give them back through Release; pages that
// were never published go the same way.
package prefix

import (
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
)

// Options are what a cache is made with.
type Options struct {
	// PageSize is the token slots in a page.
	PageSize int
	// Budget is how many unreferenced pages may stay: -1 any number, 0 none, which also turns
	// matching off.
	Budget int
	// Window is how many tokens, itself included, a token sees, and Sinks how many first ones
	// beside them; a Window of 0 means all.
	Window, Sinks int
}

// hollowPerPage bounds the hollow nodes: beyond so many for each page of the pool, pages are
// evicted until fewer paths are left to remember.
const hollowPerPage = 64

// Cache is the tree over the pages of one pool.
type Cache struct {
	pool      *kvcache.Pool
	pageSize  int
	budget    int
	window    int
	sinkPages int     // How many first pages hold sinks.
	byPage    []*node // The node of each page in the tree.
	unused    []*node
	roots     []*node
	idle      []*node // Heap of pages that may be evicted next, least recently used first.
	walked    []*node // Scratch of a lookup.
	clock     int64   // Counts uses; the time that LRU goes by.
	counts    Counts
}

// Counts are the cache's gauges and counters.
type Counts struct {
	// Evictable pages are unreferenced and not pinned; PinnedIdle unreferenced and pinned.
	Evictable, PinnedIdle int
	// Pinned counts all pages of pinned prompts, Pages all pages in the tree.
	Pinned, Pages int
	// Hollow counts the nodes without a page.
	Hollow int
	// Evicted counts pages evicted since the start.
	Evicted uint64
}

type node struct {
	page     kvcache.PageID // None: hollow.
	tokens   []int32        // 1..pageSize of them, in the node's own storage.
	parent   *node          // Nil below the root.
	children []*node        // Sorted by tokens; starts out in only, since most have one.
	only     [1]*node
	depth    int   // How many pages come before.
	stamp    int64 // When it was last used.
	pins     int
	paths    int // How many sequences' paths end here.
	heapAt   int // Its index in idle, or -1.
}

// Path is how much of a sequence is in the tree: the deepest node and the tokens up to its end.
// The zero value is the root. It keeps its node in the tree until Release.
type Path struct {
	node   *node
	tokens int
}

// Tokens is how many tokens of the sequence are in the tree on its own pages.
func (p Path) Tokens() int { return p.tokens }

// New returns an empty tree over the pages of a pool.
func New(pool *kvcache.Pool, o Options) *Cache {
	pages := pool.Counts().Total
	c := &Cache{
		pool: pool, pageSize: o.PageSize, budget: o.Budget, window: o.Window,
		byPage: make([]*node, pages),
	}
	if o.Window > 0 {
		c.sinkPages = (o.Sinks + o.PageSize - 1) / o.PageSize
	}
	c.grow(pages)
	return c
}

// grow makes so many more nodes.
func (c *Cache) grow(nodes int) {
	block, tokens := make([]node, nodes), make([]int32, nodes*c.pageSize)
	for i := range block {
		n := &block[len(block)-1-i]
		n.page, n.heapAt = kvcache.None, -1
		n.tokens, n.children = tokens[i*c.pageSize:i*c.pageSize:(i+1)*c.pageSize], n.only[:0]
		c.unused = append(c.unused, n)
	}
}

// Off reports whether the cache keeps and matches nothing.
func (c *Cache) Off() bool { return c.budget == 0 }

// Counts returns the gauges and counters.
func (c *Cache) Counts() Counts { return c.counts }

// Available is how many pages can be handed out: free ones and evictable ones.
func (c *Cache) Available() int { return c.pool.Free() + c.counts.Evictable }

// takeable reports whether a node's page can become a sequence's own.
func (c *Cache) takeable(n *node) bool {
	return n.page != kvcache.None && len(n.children) == 0 && n.pins == 0 && n.paths == 0 &&
		c.pool.Refs(n.page) == 0
}

// exact returns the child that holds just these tokens, or nil.
func (c *Cache) exact(parent *node, tokens []int32) *node {
	at, found := c.find(parent, tokens)
	if !found {
		return nil
	}
	return (*c.children(parent))[at]
}

// longest returns the child with a page that shares the most leading tokens, and how many. Among
// sorted siblings it is the nearest such one on a side of the place where the tokens themselves
// would stand.
func (c *Cache) longest(parent *node, tokens []int32) (best *node, most int) {
	siblings := *c.children(parent)
	at, _ := c.find(parent, tokens)
	for _, side := range [2]struct{ from, step int }{{at - 1, -1}, {at, 1}} {
		for i := side.from; i >= 0 && i < len(siblings); i += side.step {
			n := shared(siblings[i].tokens, tokens)
			if n == 0 {
				break
			}
			if siblings[i].page == kvcache.None {
				continue
			}
			if n > most || n == most && !c.takeable(best) && c.takeable(siblings[i]) {
				best, most = siblings[i], n
			}
			break
		}
	}
	return best, most
}

// find returns the index of the first child whose tokens are not less, and whether they are equal.
func (c *Cache) find(parent *node, tokens []int32) (at int, found bool) {
	return slices.BinarySearchFunc(*c.children(parent), tokens,
		func(n *node, tokens []int32) int { return slices.Compare(n.tokens, tokens) })
}

func (c *Cache) children(parent *node) *[]*node {
	if parent == nil {
		return &c.roots
	}
	return &parent.children
}

// shared is the length of the common start of two token runs.
func shared(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
