package prefix

import (
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
)

// rewind takes a match back to a part of it that needs no page that is not there.
func (w *world) rewind(s *sequence) {
	k := 0
	for k < s.computed/w.page && s.pages[k] != kvcache.None && w.r.IntN(4) > 0 {
		k++
	}
	w.marks["rewound"]++
	w.cache.Rewind(&s.path, k*w.page)
	w.cache.Release(Path{}, s.pages[k:], Keep, 0)
	w.clock = w.cache.clock
	for _, p := range s.pages[k:] {
		w.rested(p, w.clock)
	}
	s.pages, s.computed, s.own = s.pages[:k], k*w.page, min(s.own, k)
	w.trim()
}

// needs reports whether a position sees a page, by the words of the definition.
func (w *world) needs(position, k int) bool {
	for key := k * w.page; key < min((k+1)*w.page, position); key++ {
		if w.window == 0 || key > position-w.window {
			return true
		}
	}
	return w.window > 0 && k*w.page < w.sinks
}

// holder is the page that holds the last tokens of a run of full pages, or None.
func (w *world) holder(tokens []int32) kvcache.PageID {
	for p, path := range w.tree {
		if slices.Equal(path, tokens) {
			return p
		}
	}
	return kvcache.None
}

// longest scans the tree for the longest match there is.
func (w *world) longest(tokens []int32) int {
	known := 0
	for _, path := range w.tree {
		known = max(known, min(shared(path, tokens), len(tokens)-1))
	}
	for m := known; m > 0; m-- {
		ok := m%w.page == 0
		for _, path := range w.tree {
			ok = ok || (len(path)-1)/w.page == m/w.page && shared(path, tokens) >= m
		}
		for k := 0; k < m/w.page && ok; k++ {
			ok = !w.needs(m, k) || w.holder(tokens[:(k+1)*w.page]) != kvcache.None
		}
		if ok {
			return m
		}
		w.marks["shorter"]++
	}
	return 0
}

// slide gives back what no later position of a sequence sees, and predicts what becomes of it.
func (w *world) slide(s *sequence) {
	to := 0
	for to < len(s.pages) && (to+1)*w.page <= s.computed-w.window+1 && w.window > 0 {
		to++
	}
	from := min(to, (w.sinks+w.page-1)/w.page)
	before := slices.Clone(s.pages)
	w.cache.Slide(s.pages, from, to, s.own)
	for k := from; k < to; k++ {
		p := before[k]
		if p == kvcache.None || w.tree[p] == nil || w.pool.Refs(p) > 0 {
			continue
		}
		if k >= s.own && w.pins[p] == 0 {
			delete(w.tree, p)
			w.marks["hollow"]++
			continue
		}
		w.rested(p, w.cache.clock)
	}
	if w.window > 0 && s.path.node != nil && s.path.node.page == kvcache.None {
		w.marks["hollow leaf"]++
	}
	w.trim()
}

// TestHollowNodesAreBounded: a small cache does not remember without end what it once held.
func TestHollowNodesAreBounded(t *testing.T) {
	pool := kvcache.NewPool(4)
	c := New(pool, Options{PageSize: 1, Budget: -1, Window: 2})
	for i := range 2 {
		page, _ := pool.Take()
		tokens := make([]int32, 200)
		table := make([]kvcache.PageID, 200)
		for k := range tokens {
			tokens[k], table[k] = int32(1000*i+k), kvcache.None
		}
		table[199] = page
		var path Path
		c.Publish(&path, tokens, table, true)
		c.Release(path, table, Keep, 0)
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Counts(); got.Hollow != 199 || got.Pages != 1 || got.Evicted != 1 {
		t.Errorf("%+v, want one prompt of two", got)
	}
}
