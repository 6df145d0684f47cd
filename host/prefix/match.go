package prefix

import "github.com/kvrelay/engine/host/kvcache"

// Hit is what the cache holds of a prompt's start. Its pages are referenced.
type Hit struct {
	// Tokens is the length of the match: without a window also the position of the first token that
	// was not found, unless it is the prompt's last, which is never looked for.
	Tokens int
	// Path ends with the last full page that matched.
	Path Path
	// Tail holds the Tokens%PageSize further tokens, or is None.
	Tail kvcache.PageID
	// TakeOver is set when the tail is an unreferenced leaf: it may be taken over instead of
	// copied.
	TakeOver bool
}

// Match finds the longest run of tokens, short of the last, whose KV is here: all that the position
// after it sees. It references the full pages of that, which it appends to pages (None stands for
// what has slid out), and the tail. Settle the hit by using it, or give it up by Undo.
func (c *Cache) Match(tokens []int32, pages []kvcache.PageID) (Hit, []kvcache.PageID) {
	hit := Hit{Tail: kvcache.None}
	if c.Off() || len(tokens) < 2 {
		return hit, pages
	}
	c.clock++
	f := c.look(tokens[:len(tokens)-1])
	hit.Tokens = f.tokens
	first := c.first(f.tokens)
	for i, n := range c.walked[:f.full] {
		if i < first && i >= c.sinkPages {
			c.touch(n)
			pages = append(pages, kvcache.None)
			continue
		}
		c.retain(n)
		pages = append(pages, n.page)
	}
	if f.full > 0 {
		hit.Path = Path{node: c.walked[f.full-1], tokens: f.full * c.pageSize}
		hit.Path.node.paths++
	}
	if f.tail != nil {
		hit.Tail, hit.TakeOver = f.tail.page, c.takeable(f.tail)
		c.retain(f.tail)
	}
	return hit, pages
}

// Peek is the length that Match would find. It changes nothing, not even what was used last.
func (c *Cache) Peek(tokens []int32) int {
	if c.Off() || len(tokens) < 2 {
		return 0
	}
	return c.look(tokens[:len(tokens)-1]).tokens
}

// found is how far a lookup came: full pages on walked, then a part of tail, if any.
type found struct {
	full, tokens int
	tail         *node
}

// look walks down as far as tokens are known, then back up until all is there that the position
// after the match sees. Of the lengths that end in one page the longest sees the least, so that one
// is asked for each page; one that ends in a page on the way was asked for with the next page.
func (c *Cache) look(tokens []int32) found {
	c.walked = c.walked[:0]
	var last *node
	for at := 0; len(tokens)-at >= c.pageSize; at += c.pageSize {
		n := c.exact(last, tokens[at:at+c.pageSize])
		if n == nil {
			break
		}
		c.walked = append(c.walked, n)
		last = n
	}
	for full := len(c.walked); full >= 0; full-- {
		if full < len(c.walked) && c.walked[full].page != kvcache.None {
			continue
		}
		start := full * c.pageSize
		rest := tokens[start:min(start+c.pageSize, len(tokens))]
		if !c.sees(full, start+len(rest)) {
			continue
		}
		var parent *node
		if full > 0 {
			parent = c.walked[full-1]
		}
		tail, n := c.longest(parent, rest)
		if c.sees(full, start+n) {
			return found{full: full, tokens: start + n, tail: tail}
		}
	}
	return found{}
}

// first is the index of the first page that a position sees through the window.
func (c *Cache) first(position int) int {
	if c.window == 0 {
		return 0
	}
	return max(0, position-c.window+1) / c.pageSize
}

// sees reports whether the pages that a position sees among the first so many walked are there.
func (c *Cache) sees(full, position int) bool {
	if c.window == 0 {
		return true
	}
	for i := full - 1; i >= c.first(position); i-- {
		if c.walked[i].page == kvcache.None {
			return false
		}
	}
	for _, n := range c.walked[:min(c.sinkPages, full)] {
		if n.page == kvcache.None {
			return false
		}
	}
	return true
}

// TakeTail takes a hit's tail over: the page leaves the tree with its one reference, and the tokens
// after the match are popped from it. Only for a hit with TakeOver.
func (c *Cache) TakeTail(hit Hit) kvcache.PageID {
	c.remove(c.byPage[hit.Tail])
	return hit.Tail
}

// DropTail gives up the tail of a hit, which then ends with its last full page. With a window that
// may not be a match any more: see Undo.
func (c *Cache) DropTail(hit Hit) Hit {
	if hit.Tail != kvcache.None {
		c.release(hit.Tail, c.clock)
		hit.Tail, hit.TakeOver, hit.Tokens = kvcache.None, false, hit.Path.tokens
	}
	return hit
}

// Undo gives up a hit and the pages that came with it.
func (c *Cache) Undo(hit Hit, pages []kvcache.PageID) {
	c.DropTail(hit)
	c.Release(hit.Path, pages, Keep, 0)
}
