// Package prefix remembers which pages hold the KV of which tokens, so that a prompt need not be
// computed again where another one began alike. It is a radix tree of pages, exact to the token: a
// node is a page and its tokens, a full page or, in a leaf, fewer.
//
// What always holds:
//
//  1. A sequence that references a node's page references the pages of all its ancestors, by the
//     page table it has: what is published hangs only below the sequence's own pages. Hence an
//     unreferenced node has unreferenced descendants only, and evicting leaves can free them all.
//  2. No two siblings hold equal tokens; siblings are sorted, so a lookup is a binary search.
//  3. A page that is not full has no children, and only its publisher writes to it.
//  4. Pinned nodes have pinned ancestors and are never evicted.
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
}

// Cache is the tree over the pages of one pool.
type Cache struct {
	pool     *kvcache.Pool
	pageSize int
	budget   int
	nodes    []node // One a page; meaningful while the pool keeps that page.
	roots    []kvcache.PageID
	idle     []kvcache.PageID // Heap of evictable leaves, least recently used first.
	clock    int64            // Counts uses; the time that LRU goes by.
	counts   Counts
}

// Counts are the cache's gauges and counters.
type Counts struct {
	// Evictable pages are unreferenced and not pinned; PinnedIdle unreferenced and pinned.
	Evictable, PinnedIdle int
	// Pinned counts all pages of pinned prompts, Pages all pages in the tree.
	Pinned, Pages int
	// Evicted counts pages evicted since the start.
	Evicted uint64
}

type node struct {
	tokens   []int32 // 1..pageSize of them, in the node's own storage.
	parent   kvcache.PageID
	children []kvcache.PageID // Sorted by tokens; starts out in only, since most have one.
	only     [1]kvcache.PageID
	stamp    int64 // When it was last used.
	pins     int
	heapAt   int // Its index in idle, or -1.
}

// Path is how much of a sequence is in the tree: the deepest node and the tokens up to its end.
// The zero value is the root.
type Path struct {
	node   kvcache.PageID // Meaningless while tokens is 0.
	tokens int
}

// Tokens is how many tokens of the sequence are in the tree on its own pages.
func (p Path) Tokens() int { return p.tokens }

func (p Path) last() kvcache.PageID {
	if p.tokens == 0 {
		return kvcache.None
	}
	return p.node
}

// New returns an empty tree over the pages of a pool.
func New(pool *kvcache.Pool, o Options) *Cache {
	pages := pool.Counts().Total
	c := &Cache{pool: pool, pageSize: o.PageSize, budget: o.Budget, nodes: make([]node, pages)}
	tokens := make([]int32, pages*o.PageSize)
	for i := range c.nodes {
		n := &c.nodes[i]
		n.tokens, n.parent, n.heapAt = tokens[:0:o.PageSize], kvcache.None, -1
		n.children = n.only[:0]
		tokens = tokens[o.PageSize:]
	}
	return c
}

// Off reports whether the cache keeps and matches nothing.
func (c *Cache) Off() bool { return c.budget == 0 }

// Counts returns the gauges and counters.
func (c *Cache) Counts() Counts { return c.counts }

// Available is how many pages can be handed out: free ones and evictable ones.
func (c *Cache) Available() int { return c.pool.Free() + c.counts.Evictable }

// Hit is what the cache holds of a prompt's start. Its pages are referenced.
type Hit struct {
	// Tokens is the length of the match: also the position of the first token that was not found,
	// unless it is the prompt's last, which is never looked for.
	Tokens int
	// Path ends with the last full page that matched.
	Path Path
	// Tail holds the Tokens%PageSize further tokens, or is None.
	Tail kvcache.PageID
	// TakeOver is set when the tail is an unreferenced leaf: it may be taken over instead of
	// copied.
	TakeOver bool
}

// Match finds the longest run of tokens, short of the last, whose KV is here. It references the
// full pages, which it appends to pages, and the tail. Accept or Undo must follow.
func (c *Cache) Match(tokens []int32, pages []kvcache.PageID) (Hit, []kvcache.PageID) {
	hit := Hit{Tail: kvcache.None}
	if c.Off() || len(tokens) < 2 {
		return hit, pages
	}
	c.clock++
	tokens = tokens[:len(tokens)-1]
	parent := kvcache.None
	for len(tokens)-hit.Tokens >= c.pageSize {
		page := c.exact(parent, tokens[hit.Tokens:hit.Tokens+c.pageSize])
		if page == kvcache.None {
			break
		}
		c.retain(page)
		pages = append(pages, page)
		parent = page
		hit.Tokens += c.pageSize
	}
	hit.Path = Path{node: parent, tokens: hit.Tokens}
	rest := tokens[hit.Tokens:min(hit.Tokens+c.pageSize, len(tokens))]
	if tail, n := c.longest(parent, rest); n > 0 {
		hit.Tail, hit.TakeOver = tail, c.takeable(tail)
		hit.Tokens += n
		c.retain(tail)
	}
	return hit, pages
}

// Peek is the length that Match would find. It changes nothing, not even what was used last.
func (c *Cache) Peek(tokens []int32) int {
	if c.Off() || len(tokens) < 2 {
		return 0
	}
	tokens = tokens[:len(tokens)-1]
	parent, matched := kvcache.None, 0
	for len(tokens)-matched >= c.pageSize {
		page := c.exact(parent, tokens[matched:matched+c.pageSize])
		if page == kvcache.None {
			break
		}
		parent = page
		matched += c.pageSize
	}
	_, n := c.longest(parent, tokens[matched:min(matched+c.pageSize, len(tokens))])
	return matched + n
}

// TakeTail takes a hit's tail over: the page leaves the tree with its one reference, and the tokens
// after the match are popped from it. Only for a hit with TakeOver.
func (c *Cache) TakeTail(hit Hit) kvcache.PageID {
	c.remove(hit.Tail)
	return hit.Tail
}

// DropTail gives up the tail of a hit, which then ends with its last full page.
func (c *Cache) DropTail(hit Hit) Hit {
	if hit.Tail != kvcache.None {
		c.release(hit.Tail, c.clock)
		hit.Tail, hit.TakeOver, hit.Tokens = kvcache.None, false, hit.Path.tokens
	}
	return hit
}

// takeable reports whether a node's page can become a sequence's own.
func (c *Cache) takeable(page kvcache.PageID) bool {
	n := &c.nodes[page]
	return len(n.children) == 0 && n.pins == 0 && c.pool.Refs(page) == 0
}

// exact returns the child that holds just these tokens, or None.
func (c *Cache) exact(parent kvcache.PageID, tokens []int32) kvcache.PageID {
	at, found := c.find(parent, tokens)
	if !found {
		return kvcache.None
	}
	return (*c.children(parent))[at]
}

// longest returns the child that shares the most leading tokens, and how many. Among sorted
// siblings it is a neighbour of the place where the tokens themselves would stand.
func (c *Cache) longest(parent kvcache.PageID, tokens []int32) (kvcache.PageID, int) {
	best, most := kvcache.None, 0
	siblings := *c.children(parent)
	at, _ := c.find(parent, tokens)
	for i := max(at-1, 0); i <= at && i < len(siblings); i++ {
		n := shared(c.nodes[siblings[i]].tokens, tokens)
		if n > most || (n == most && n > 0 && !c.takeable(best) && c.takeable(siblings[i])) {
			best, most = siblings[i], n
		}
	}
	return best, most
}

// find returns the index of the first child whose tokens are not less, and whether they are equal.
func (c *Cache) find(parent kvcache.PageID, tokens []int32) (at int, found bool) {
	return slices.BinarySearchFunc(*c.children(parent), tokens,
		func(page kvcache.PageID, tokens []int32) int {
			return slices.Compare(c.nodes[page].tokens, tokens)
		})
}

func (c *Cache) children(parent kvcache.PageID) *[]kvcache.PageID {
	if parent == kvcache.None {
		return &c.roots
	}
	return &c.nodes[parent].children
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
