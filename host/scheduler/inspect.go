package scheduler

import "github.com/kvrelay/engine/host/kvcache"

// Pool is the pool of pages, for checkers: who looks on must not change it.
func (s *Scheduler) Pool() *kvcache.Pool { return s.models[0].pool }

// Item is the digest of the item of vectors for which a negative token stands in the prefix cache;
// ok is false when none is known by it.
func (s *Scheduler) Item(token int32) (digest [32]byte, ok bool) {
	for digest, known := range s.names.known {
		if known.number == token {
			return digest, true
		}
	}
	return digest, false
}

// Cached visits every page of the prefix cache, parents first, with the tokens up to its end; first
// is where its own begin. A page that slid out of a window is kvcache.None.
func (s *Scheduler) Cached(visit func(tokens []int32, first int, page kvcache.PageID)) {
	s.models[0].cache.Walk(visit)
}
