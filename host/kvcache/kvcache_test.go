package kvcache

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

var seed = flag.Uint64("seed", 1, "first seed of the random tests")

// twin is the pool as a map: what each page is, in the plainest words.
type twin map[PageID]*twinPage

type twinPage struct {
	refs              int
	kept, quarantined bool
}

func (w twin) counts() Counts {
	c := Counts{Total: len(w)}
	for _, p := range w {
		switch {
		case p.refs > 0:
			c.Held++
		case p.kept:
			c.Kept++
		case p.quarantined:
			c.Quarantined++
		default:
			c.Free++
		}
	}
	return c
}

// where returns a random page for which ok holds, and whether there is one.
func (w twin) where(r *rand.Rand, ok func(*twinPage) bool) (PageID, bool) {
	start := r.IntN(len(w))
	for i := range len(w) {
		id := PageID((start + i) % len(w))
		if ok(w[id]) {
			return id, true
		}
	}
	return None, false
}

func TestPoolAgainstTwin(t *testing.T) {
	for s := *seed; s < *seed+50; s++ {
		r := rand.New(rand.NewPCG(s, 0))
		n := 1 + r.IntN(20)
		pool, w := NewPool(n), twin{}
		for i := range n {
			w[PageID(i)] = &twinPage{}
		}
		for range 400 {
			step(t, r, pool, w)
			if err := pool.Check(); err != nil {
				t.Fatalf("seed %d: %v", s, err)
			}
			if got, want := pool.Counts(), w.counts(); got != want {
				t.Fatalf("seed %d: counts %+v, want %+v", s, got, want)
			}
			for id, p := range w {
				if pool.Refs(id) != p.refs || pool.Kept(id) != p.kept {
					t.Fatalf("seed %d: page %d: refs %d kept %t, want %+v",
						s, id, pool.Refs(id), pool.Kept(id), *p)
				}
			}
		}
	}
}

// step does one random legal operation on both.
func step(t *testing.T, r *rand.Rand, pool *Pool, w twin) {
	t.Helper()
	switch r.IntN(8) {
	case 0, 1:
		id, ok := pool.Take()
		if ok != (w.counts().Free > 0) {
			t.Fatalf("Take: %t with %d free", ok, w.counts().Free)
		}
		if ok {
			w[id].refs = 1
		}
	case 2:
		if id, ok := w.where(r, func(p *twinPage) bool { return p.refs > 0 || p.kept }); ok {
			pool.Retain(id)
			w[id].refs++
		}
	case 3, 4:
		if id, ok := w.where(r, func(p *twinPage) bool { return p.refs > 0 }); ok {
			w[id].refs--
			if left := pool.Release(id); left != w[id].refs {
				t.Fatalf("Release left %d, want %d", left, w[id].refs)
			}
		}
	case 5:
		if id, ok := w.where(r, func(p *twinPage) bool { return p.refs > 0 && !p.kept }); ok {
			pool.Keep(id)
			w[id].kept = true
		}
	case 6:
		if id, ok := w.where(r, func(p *twinPage) bool { return p.kept }); ok {
			pool.Forget(id)
			w[id].kept = false
		}
	case 7:
		alone := func(p *twinPage) bool { return p.refs == 1 && !p.kept }
		if id, ok := w.where(r, func(p *twinPage) bool { return p.quarantined }); ok {
			pool.Fence(id)
			w[id].quarantined = false
		} else if id, ok := w.where(r, alone); ok {
			pool.Quarantine(id)
			w[id].refs, w[id].quarantined = 0, true
		}
	}
}

// TestMisuse: what would corrupt somebody's pages stops at once.
func TestMisuse(t *testing.T) {
	for name, misuse := range map[string]func(*Pool, PageID){
		"release twice":     func(p *Pool, id PageID) { p.Release(id); p.Release(id) },
		"retain free":       func(p *Pool, id PageID) { p.Release(id); p.Retain(id) },
		"keep free":         func(p *Pool, id PageID) { p.Release(id); p.Keep(id) },
		"keep twice":        func(p *Pool, id PageID) { p.Keep(id); p.Keep(id) },
		"forget unkept":     func(p *Pool, id PageID) { p.Forget(id) },
		"quarantine shared": func(p *Pool, id PageID) { p.Retain(id); p.Quarantine(id) },
		"quarantine kept":   func(p *Pool, id PageID) { p.Keep(id); p.Quarantine(id) },
		"fence held":        func(p *Pool, id PageID) { p.Fence(id) },
		"release isolated":  func(p *Pool, id PageID) { p.Quarantine(id); p.Release(id) },
		"retain isolated":   func(p *Pool, id PageID) { p.Quarantine(id); p.Retain(id) },
		"fence twice":       func(p *Pool, x PageID) { p.Quarantine(x); p.Fence(x); p.Fence(x) },
		"forget twice":      func(p *Pool, x PageID) { p.Keep(x); p.Forget(x); p.Forget(x) },
	} {
		t.Run(name, func(t *testing.T) {
			pool := NewPool(2)
			id, _ := pool.Take()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(pool, id)
		})
	}
}

// TestScenario51: the run-length form of slots.
func TestScenario51Segments(t *testing.T) {
	table := []PageID{5, 6, 9}
	gone := []PageID{5, None, None, 0, None, 2}
	for _, c := range []struct {
		name       string
		start, end int
		want       []int
	}{
		{"contiguous pages merge", 0, 40, []int{2, 80, 32, 144, 8}},
		{"one run even across pages", 3, 29, []int{1, 83, 26}},
		{"within a page", 35, 40, []int{1, 147, 5}},
		{"from a page's end", 31, 34, []int{2, 111, 1, 144, 2}},
		{"empty", 7, 7, []int{0}},
	} {
		got := AppendSegments([]int{-1}, table, 16, c.start, c.end)
		if !slices.Equal(got[1:], c.want) || got[0] != -1 {
			t.Errorf("%s: %v, want %v after -1", c.name, got, c.want)
		}
	}
	got := AppendSegments(nil, gone, 16, 10, 90)
	if want := []int{5, 90, 6, -1, 32, 0, 16, -1, 16, 32, 10}; !slices.Equal(got, want) {
		t.Errorf("with pages gone: %v, want %v", got, want)
	}
	slots := AppendSlots(nil, table, 16, 10, 40)
	want := []SlotRange{{5, 10, 6}, {6, 0, 16}, {9, 0, 8}}
	if !slices.Equal(slots, want) {
		t.Errorf("slots %v, want %v", slots, want)
	}
}
