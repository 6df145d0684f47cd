package scheduler

import "github.com/kvrelay/engine/host/kvcache"

// Pool is the pool of pages, for checkers: who looks on must not change it.
func (s *Scheduler) Pool() *kvcache.Pool { return s.models[0].pool }

// Cached visits every page of the prefix cache, parents first, with the tokens up to its end; first
// is where its own begin. A page that slid out of a window is kvcache.None.
func (s *Scheduler) Cached(visit func(tokens []int32, first int, page kvcache.PageID)) {
	s.models[0].cache.Walk(visit)
}
