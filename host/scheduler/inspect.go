package scheduler

import "github.com/kvrelay/engine/host/kvcache"

// Pool is the pool of a model's pages, the main one being 0, for checkers: who looks on must not
// change it.
func (s *Scheduler) Pool(model int) *kvcache.Pool { return s.models[model].pool }

// Tokens are the prompt and the output of a sequence, valid until the scheduler is used again; nil
// when there is none.
func (s *Scheduler) Tokens(id SequenceID) []int32 {
	if q := s.byID[id]; q != nil {
		return q.tokens
	}
	return nil
}

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

// Cached visits every page of a model's prefix cache, parents first, with the tokens up to its end;
// first is where its own begin. A page that slid out of a window is kvcache.None.
func (s *Scheduler) Cached(
	model int, visit func(tokens []int32, first int, page kvcache.PageID),
) {
	s.models[model].cache.Walk(visit)
}
