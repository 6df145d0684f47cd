package scheduler

import "github.com/kvrelay/engine/host/kvcache"

// Owner says who has a page.
type Owner uint8

// Owners of a page.
const (
	// OwnerNone: the page is free.
	OwnerNone Owner = iota
	// OwnerSequence: at least one sequence references it; it may be in the prefix tree, too.
	OwnerSequence
	// OwnerTree: the prefix tree keeps it, and no sequence references it.
	OwnerTree
	// OwnerQuarantine: a writer outside may still write to it.
	OwnerQuarantine
)

// Owner returns who has a page, for checkers.
func (s *Scheduler) Owner(page kvcache.PageID) Owner {
	switch {
	case s.pool.Refs(page) > 0:
		return OwnerSequence
	case s.pool.Kept(page):
		return OwnerTree
	case s.pool.Quarantined(page):
		return OwnerQuarantine
	}
	return OwnerNone
}

// Cached visits every page of the prefix cache, parents first, with the tokens up to its end; first
// is where its own begin. A page that slid out of a window is kvcache.None.
func (s *Scheduler) Cached(visit func(tokens []int32, first int, page kvcache.PageID)) {
	s.cache.Walk(visit)
}
