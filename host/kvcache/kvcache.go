// Package kvcache counts the pages of KV memory: which are free, which are held and by how many.
// It knows integers only; the arrays behind the pages belong to host/model.
//
// A page is in exactly one place:
//
//	free ──Take──► held (by 1..n references) ──Release──► free
//	                │  ▲
//	    Keep, then  │  │ Retain
//	    Release     ▼  │
//	               kept (in the prefix tree, unreferenced) ──Forget──► free
//
//	held, one reference, not in the tree ──Quarantine──► quarantine ──Fence──► free
//
// A held page may be in the prefix tree at the same time (Keep): then it stays there when its last
// reference goes.
package kvcache

import "fmt"

// PageID is the index of a page in its pool. A page is PageSize token slots of every layer.
type PageID int32

// None is no page.
const None PageID = -1

// Pool says who owns each page. Misuse (a page released twice, kept while free) panics: it is a bug
// of the caller that would corrupt somebody's keys and values.
type Pool struct {
	refs        []int32 // References by sequences.
	kept        []bool  // In the prefix tree.
	quarantined []bool
	free        []PageID // Last in, first out, so that fresh pages tend to be neighbours.
	counts      Counts
}

// Counts is how many pages are in each place. The first four sum to Total.
type Counts struct {
	Free int
	// Held pages are referenced, whether in the tree or not.
	Held int
	// Kept pages are in the tree and not referenced.
	Kept        int
	Quarantined int
	Total       int
}

// NewPool returns a pool of free pages, 0 to pages-1.
func NewPool(pages int) *Pool {
	p := &Pool{
		refs:        make([]int32, pages),
		kept:        make([]bool, pages),
		quarantined: make([]bool, pages),
		free:        make([]PageID, pages),
		counts:      Counts{Free: pages, Total: pages},
	}
	for i := range p.free {
		p.free[i] = PageID(pages - 1 - i)
	}
	return p
}

// Counts returns how many pages are where.
func (p *Pool) Counts() Counts { return p.counts }

// Free is the number of free pages.
func (p *Pool) Free() int { return p.counts.Free }

// Refs is the number of references to a page.
func (p *Pool) Refs(page PageID) int { return int(p.refs[page]) }

// Kept reports whether a page is in the prefix tree.
func (p *Pool) Kept(page PageID) bool { return p.kept[page] }

// Quarantined reports whether a page waits for its writer to be fenced.
func (p *Pool) Quarantined(page PageID) bool { return p.quarantined[page] }

// Take hands out a free page with one reference; ok is false when there is none.
func (p *Pool) Take() (page PageID, ok bool) {
	if len(p.free) == 0 {
		return None, false
	}
	page = p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.refs[page] = 1
	p.counts.Free--
	p.counts.Held++
	return page, true
}

// Retain adds a reference to a held or kept page.
func (p *Pool) Retain(page PageID) {
	if p.refs[page] == 0 {
		p.must(p.kept[page], page, "retained while nobody owns it")
		p.counts.Kept--
		p.counts.Held++
	}
	p.refs[page]++
}

// Release drops a reference and returns how many are left. With the last one a page that is not in
// the tree becomes free.
func (p *Pool) Release(page PageID) int {
	p.must(p.refs[page] > 0, page, "released without a reference")
	p.refs[page]--
	if p.refs[page] > 0 {
		return int(p.refs[page])
	}
	p.counts.Held--
	if p.kept[page] {
		p.counts.Kept++
	} else {
		p.putFree(page)
	}
	return 0
}

// Keep says that a held page is in the prefix tree from now on.
func (p *Pool) Keep(page PageID) {
	p.must(p.refs[page] > 0 && !p.kept[page], page, "kept twice or while not held")
	p.kept[page] = true
}

// Forget says that a page has left the prefix tree; unreferenced, it is free.
func (p *Pool) Forget(page PageID) {
	p.must(p.kept[page], page, "forgotten while not kept")
	p.kept[page] = false
	if p.refs[page] == 0 {
		p.counts.Kept--
		p.putFree(page)
	}
}

// Quarantine takes a page away from its one holder because somebody outside may still write to it.
func (p *Pool) Quarantine(page PageID) {
	p.must(p.refs[page] == 1 && !p.kept[page], page, "quarantined while shared")
	p.refs[page] = 0
	p.quarantined[page] = true
	p.counts.Held--
	p.counts.Quarantined++
}

// Fence says that nobody outside can write to a quarantined page any more: it is free.
func (p *Pool) Fence(page PageID) {
	p.must(p.quarantined[page], page, "fenced while not in quarantine")
	p.quarantined[page] = false
	p.counts.Quarantined--
	p.putFree(page)
}

func (p *Pool) putFree(page PageID) {
	p.free = append(p.free, page)
	p.counts.Free++
}

func (p *Pool) must(ok bool, page PageID, what string) {
	if !ok {
		panic(fmt.Sprintf("kvcache: page %d %s (refs %d, kept %t, quarantined %t)",
			page, what, p.refs[page], p.kept[page], p.quarantined[page]))
	}
}

// Check verifies that every page is in exactly one place and that the counts say so.
func (p *Pool) Check() error {
	inFree := make([]bool, len(p.refs))
	for _, page := range p.free {
		if inFree[page] {
			return fmt.Errorf("kvcache: page %d is twice in the free list", page)
		}
		inFree[page] = true
	}
	seen := Counts{Total: len(p.refs)}
	for i, refs := range p.refs {
		places := 0
		for _, in := range []struct {
			here  bool
			count *int
		}{
			{inFree[i], &seen.Free},
			{refs > 0, &seen.Held},
			{refs == 0 && p.kept[i], &seen.Kept},
			{p.quarantined[i], &seen.Quarantined},
		} {
			if in.here {
				places++
				*in.count++
			}
		}
		if places != 1 || refs < 0 {
			return fmt.Errorf("kvcache: page %d has %d owners: free %t, refs %d, kept "+
				"%t, quarantined %t",
				i, places, inFree[i], refs, p.kept[i], p.quarantined[i])
		}
	}
	if seen != p.counts {
		return fmt.Errorf("kvcache: pages are %+v, counted as %+v", seen, p.counts)
	}
	return nil
}
