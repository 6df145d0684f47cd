package prefix

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
)

var (
	seed  = flag.Uint64("seed", 1, "first seed of the random tests")
	seeds = flag.Uint64("seeds", 60, "number of seeds")
)

// world drives a cache with sequences whose KV is a hash of all tokens up to the slot, so that any
// page in the wrong place is seen, and predicts it with plain maps and scans.
type world struct {
	t     *testing.T
	r     *rand.Rand
	pool  *kvcache.Pool
	cache *Cache
	page  int
	// window and sinks are the model's, 0 for one that sees all.
	window, sinks int
	kv            map[kvcache.PageID][]uint64 // What the slots hold.
	tree          map[kvcache.PageID][]int32  // Every page in the tree: all tokens up to its end.
	stamp         map[kvcache.PageID]int64
	pins          map[kvcache.PageID]int
	clock         int64
	live          []*sequence
	marks         map[string]int
}

type sequence struct {
	tokens   []int32
	pages    []kvcache.PageID
	computed int
	own      int
	path     Path
	share    bool
}

func newWorld(t *testing.T, r *rand.Rand, marks map[string]int) *world {
	pages := 6 + r.IntN(30)
	w := &world{
		t: t, r: r, pool: kvcache.NewPool(pages), page: 1 + r.IntN(4), marks: marks,
		kv: map[kvcache.PageID][]uint64{}, tree: map[kvcache.PageID][]int32{},
		stamp: map[kvcache.PageID]int64{}, pins: map[kvcache.PageID]int{},
	}
	budget := -1
	if r.IntN(3) == 0 {
		budget = 1 + r.IntN(pages)
	}
	if r.IntN(2) == 0 {
		w.window, w.sinks = 2+r.IntN(3*w.page), r.IntN(2*w.page)*r.IntN(2)
	}
	w.cache = New(w.pool, Options{
		PageSize: w.page, Budget: budget, Window: w.window, Sinks: w.sinks,
	})
	for i := range pages {
		w.kv[kvcache.PageID(i)] = make([]uint64, w.page)
	}
	return w
}

func hash(tokens []int32) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range tokens {
		h = (h ^ uint64(t+1)) * 1099511628211
	}
	return h
}

// TestAgainstTwin: whatever happens, a match is the longest there is, what it hands out holds the
// right KV, and what is evicted is the least recently used.
func TestAgainstTwin(t *testing.T) {
	marks := map[string]int{}
	for s := *seed; s < *seed+*seeds; s++ {
		w := newWorld(t, rand.New(rand.NewPCG(s, 7)), marks)
		ok := t.Run(fmt.Sprint("seed", s), func(t *testing.T) {
			w.t = t
			for range 300 {
				w.step()
				w.check()
			}
			w.end()
		})
		if !ok {
			return
		}
	}
	for _, mark := range []string{
		"takeover", "copy", "shared", "stopped", "evicted", "dropped", "demoted", "pinned",
		"covered", "hollow", "hollow leaf", "filled", "shorter", "undone", "rewound",
	} {
		if marks[mark] == 0 {
			t.Errorf("no seed reached %q", mark)
		}
	}
}

func (w *world) step() {
	switch n := w.r.IntN(20); {
	case n < 7:
		w.admit()
	case n < 14 && len(w.live) > 0:
		w.extend(w.live[w.r.IntN(len(w.live))])
	case n < 19 && len(w.live) > 0:
		w.release(w.r.IntN(len(w.live)), Fate(w.r.IntN(3)))
	case n == 19 && w.r.IntN(4) == 0:
		w.pin()
	case n == 19 && w.r.IntN(8) == 0:
		clear(w.pins)
		w.cache.Reset()
		w.forget(func(p kvcache.PageID) bool { return w.pool.Refs(p) > 0 })
	}
}

// admit matches a random prompt and checks what it got against a scan of the whole tree.
func (w *world) admit() {
	tokens := make([]int32, 1+w.r.IntN(6*w.page))
	for i := range tokens {
		tokens[i] = int32(w.r.IntN(2))
	}
	want := w.longest(tokens)
	if got := w.cache.Peek(tokens); got != want {
		w.t.Fatalf("Peek %v: %d, want %d", tokens, got, want)
	}
	hit, pages := w.cache.Match(tokens, nil)
	w.clock = w.cache.clock
	if hit.Tokens != want || len(pages) != want/w.page || hit.Path.Tokens() != len(pages)*w.page {
		w.t.Fatalf("Match %v: %+v and %d pages, want %d tokens", tokens, hit, len(pages), want)
	}
	for k, p := range pages {
		if w.needs(want, k) != (p != kvcache.None) {
			w.t.Fatalf("Match %v: %d tokens on pages %v", tokens, want, pages)
		}
		if here := w.holder(tokens[:(k+1)*w.page]); here != kvcache.None {
			w.stamp[here] = w.clock
		}
	}
	s := &sequence{tokens: tokens, pages: pages, path: hit.Path, own: len(pages)}
	s.share = w.r.IntN(4) > 0
	if hit.Tail != kvcache.None {
		w.stamp[hit.Tail] = w.clock
		w.takeTail(s, hit)
	} else {
		s.computed = hit.Tokens
	}
	for i := range s.computed {
		if s.pages[i/w.page] == kvcache.None {
			continue
		}
		if got := w.kv[s.pages[i/w.page]][i%w.page]; got != hash(tokens[:i+1]) {
			w.t.Fatalf("position %d of %v holds the KV of something else", i, tokens)
		}
	}
	w.live = append(w.live, s)
	if w.r.IntN(6) == 0 {
		w.rewind(s)
	}
}

func (w *world) takeTail(s *sequence, hit Hit) {
	n := hit.Tokens % w.page
	if hit.TakeOver && w.r.IntN(5) > 0 {
		w.marks["takeover"]++
		s.pages = append(s.pages, w.cache.TakeTail(hit))
		delete(w.tree, hit.Tail)
		s.computed = hit.Tokens
		return
	}
	if w.take(s, 1) {
		w.marks["copy"]++
		copy(w.kv[s.pages[len(s.pages)-1]][:n], w.kv[hit.Tail][:n])
		s.computed = hit.Tokens
		w.cache.Release(Path{}, []kvcache.PageID{hit.Tail}, Keep, 0)
		w.rested(hit.Tail, w.cache.clock)
		w.trim()
		return
	}
	if w.window == 0 {
		s.computed = w.cache.DropTail(hit).Tokens
		return
	}
	w.marks["undone"]++
	w.cache.Undo(hit, s.pages)
	w.clock = w.cache.clock
	for _, p := range append(s.pages, hit.Tail) {
		w.rested(p, w.clock)
	}
	w.stamp[hit.Tail] = w.clock - 1 // Given up before.
	w.trim()
	s.pages, s.path, s.own = nil, Path{}, 0
}

// take reserves pages and predicts, by scanning, which ones are evicted for them.
func (w *world) take(s *sequence, pages int) bool {
	idle := 0
	for p := range w.tree {
		if w.pool.Refs(p) == 0 && w.pins[p] == 0 {
			idle++
		}
	}
	free := w.pool.Free()
	if w.cache.Available() != free+idle {
		w.t.Fatalf("%d pages available, want %d free and %d evictable",
			w.cache.Available(), free, idle)
	}
	if ok := w.cache.Reserve(pages); ok != (pages <= free+idle) {
		w.t.Fatalf("Reserve(%d): %t with %d free and %d evictable", pages, ok, free, idle)
	} else if !ok {
		return false
	}
	w.evict(pages - free)
	for range pages {
		p, ok := w.pool.Take()
		if !ok {
			w.t.Fatal("reserved and not there")
		}
		s.pages = append(s.pages, p)
	}
	return true
}

func (w *world) evict(pages int) {
	for range pages {
		victim := kvcache.None
		for p := range w.tree {
			if w.window == 0 && !w.leaf(p) || w.pins[p] > 0 || w.busy(p) {
				continue
			}
			if victim == kvcache.None || w.sooner(p, victim) {
				victim = p
			}
		}
		w.marks["evicted"]++
		delete(w.tree, victim)
	}
}

// sooner reports whether page p is evicted before q.
func (w *world) sooner(p, q kvcache.PageID) bool {
	switch {
	case w.stamp[p] != w.stamp[q]:
		return w.stamp[p] < w.stamp[q]
	case len(w.tree[p]) != len(w.tree[q]):
		return len(w.tree[p]) > len(w.tree[q])
	}
	return p < q
}

// busy reports whether a live sequence's table holds the page.
func (w *world) busy(p kvcache.PageID) bool {
	holds := func(s *sequence) bool { return slices.Contains(s.pages, p) }
	return slices.ContainsFunc(w.live, holds) || w.pool.Refs(p) > 0
}

func (w *world) leaf(p kvcache.PageID) bool {
	path := w.tree[p]
	for q, longer := range w.tree {
		if q != p && len(path)%w.page == 0 && len(longer) > len(path) &&
			shared(path, longer) == len(path) {
			return false
		}
	}
	for _, s := range w.live { // With a window a path may end where its sequence holds no page.
		at := s.tokens[:s.path.Tokens()]
		if len(path)%w.page == 0 && shared(path, at) == len(path) {
			return false
		}
	}
	return true
}

// extend computes some more tokens of a sequence, old or new, and publishes them.
func (w *world) extend(s *sequence) {
	end := s.computed + 1 + w.r.IntN(2*w.page)
	for len(s.tokens) < end {
		s.tokens = append(s.tokens, int32(w.r.IntN(2)))
	}
	if need := (end+w.page-1)/w.page - len(s.pages); need > 0 && !w.take(s, need) {
		return
	}
	for ; s.computed < end; s.computed++ {
		w.kv[s.pages[s.computed/w.page]][s.computed%w.page] = hash(s.tokens[:s.computed+1])
	}
	late := w.r.IntN(3) == 0
	if !late {
		w.slide(s)
	}
	w.publish(s)
	if late {
		w.slide(s)
	}
}

func (w *world) publish(s *sequence) {
	before, hollow := slices.Clone(s.pages), w.cache.counts.Hollow
	w.cache.Publish(&s.path, s.tokens[:s.computed], s.pages, s.share)
	switch {
	case !slices.Equal(before, s.pages):
		w.marks["shared"]++
	case s.path.Tokens() < s.computed-w.page:
		w.marks["stopped"]++
	case s.path.Tokens() < s.computed:
		w.marks["covered"]++
	}
	if w.cache.counts.Hollow < hollow {
		w.marks["filled"]++
	}
	for _, p := range before {
		delete(w.tree, p)
	}
	for k, p := range s.pages {
		if p != kvcache.None && w.pool.Kept(p) {
			w.tree[p] = slices.Clone(s.tokens[:min((k+1)*w.page, s.computed)])
			w.stamp[p] = w.clock
		}
	}
	w.reread()
}

// reread takes contents and pins of kept pages from the cache: a page that another sequence holds
// too keeps what that one wrote, and pins move to the page that covers another.
func (w *world) reread() {
	for i, n := range w.cache.byPage {
		p := kvcache.PageID(i)
		if n == nil {
			delete(w.tree, p)
			continue
		}
		var path []int32
		for q := n; q != nil; q = q.parent {
			path = append(slices.Clone(q.tokens), path...)
		}
		for i, got := range w.kv[p][:len(n.tokens)] {
			at := (len(path) - 1) / w.page * w.page
			if got != hash(path[:at+i+1]) {
				w.t.Fatalf("page %d is filed under tokens it does not hold", p)
			}
		}
		w.tree[p], w.pins[p] = path, n.pins
	}
}

func (w *world) release(i int, fate Fate) {
	s := w.live[i]
	w.live = slices.Delete(w.live, i, i+1)
	w.cache.Release(s.path, s.pages, fate, s.own)
	w.clock = w.cache.clock
	for k := len(s.pages) - 1; k >= 0; k-- {
		p, stamp := s.pages[k], w.clock
		if w.tree[p] == nil {
			continue
		}
		if fate == Demote && (w.window == 0 || k*w.page >= w.sinks) {
			stamp -= longAgo
			w.marks["demoted"]++
		}
		w.rested(p, stamp)
		if fate == Drop && k >= s.own && w.pool.Refs(p) == 0 && w.leaf(p) && w.pins[p] == 0 {
			w.marks["dropped"]++
			delete(w.tree, p)
		}
	}
	w.trim()
}

func (w *world) rested(p kvcache.PageID, stamp int64) {
	if p != kvcache.None && w.pool.Refs(p) == 0 {
		w.stamp[p] = stamp
	}
}

// trim predicts what the budget evicts.
func (w *world) trim() {
	idle := 0
	for p := range w.tree {
		if w.pool.Refs(p) == 0 && w.pins[p] == 0 {
			idle++
		}
	}
	if b := w.cache.budget; b >= 0 {
		w.evict(idle - b)
	}
}

func (w *world) pin() {
	for _, s := range w.live {
		if s.path.Tokens() == s.computed && s.computed > 0 && w.r.IntN(2) == 0 {
			if !w.cache.Pin(s.tokens[:s.computed]) && w.window == 0 {
				w.t.Fatal("a published sequence could not be pinned")
			}
			w.marks["pinned"]++
			w.reread()
			return
		}
	}
}

func (w *world) forget(keep func(kvcache.PageID) bool) {
	for p := range w.tree {
		if !keep(p) {
			delete(w.tree, p)
		}
	}
}

func (w *world) check() {
	w.t.Helper()
	if err := w.pool.Check(); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cache.Check(); err != nil {
		w.t.Fatal(err)
	}
	for i := range w.cache.byPage {
		p := kvcache.PageID(i)
		if w.pool.Refs(p) == 0 && !w.pool.Kept(p) {
			for slot := range w.kv[p] { // Whoever reads a free page shall be seen to.
				w.kv[p][slot] = w.r.Uint64()
			}
		}
		if w.pool.Kept(p) != (w.tree[p] != nil) {
			w.t.Fatalf("page %d: in the tree %t, the twin says %t",
				p, w.pool.Kept(p), w.tree[p] != nil)
		}
	}
	refs := map[kvcache.PageID]int{}
	for _, s := range w.live {
		for _, p := range s.pages {
			refs[p]++
		}
	}
	for i := range w.cache.byPage {
		if p := kvcache.PageID(i); w.pool.Refs(p) != refs[p] {
			w.t.Fatalf("page %d has %d references, tables hold %d", p, w.pool.Refs(p), refs[p])
		}
	}
}

// end: when all sequences are gone and the cache is reset, every page is free.
func (w *world) end() {
	for len(w.live) > 0 {
		w.release(0, Keep)
	}
	w.check()
	w.cache.Reset()
	left := w.cache.counts
	if free := w.pool.Free(); free != len(w.cache.byPage) || left.Pages+left.Hollow != 0 {
		w.t.Fatalf("%d of %d pages free, %+v in the tree", free, len(w.cache.byPage), left)
	}
	if err := w.cache.Check(); err != nil {
		w.t.Fatal(err)
	}
}
