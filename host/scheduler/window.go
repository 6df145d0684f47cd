package scheduler

import (
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/prefix"
)

// In a model whose every layer has one sliding window, the position n sees positions [n-Window+1,
// n] and the first Sinks ones. After a step that leaves n computed positions, pages wholly before
// n-Window+1 that hold no sink are given back; the page table holds kvcache.None for them. A chunk
// needs the pages of its own tokens on top of those, because keys and values are appended before
// attention reads them.

// sinkPages is how many first pages hold sinks.
func (o *Options) sinkPages() int {
	if o.Window == 0 {
		return 0
	}
	return (o.Sinks + o.PageSize - 1) / o.PageSize
}

// firstSeen is the index of the first page that position n, and so no later position before it,
// sees through the window.
func (o *Options) firstSeen(n int) int {
	if o.Window == 0 {
		return 0
	}
	return max(0, n-o.Window+1) / o.PageSize
}

// Holds is the most pages that a request holds at once whose keys and values are so many tokens,
// computed at most chunk at a time.
func (o *Options) Holds(tokens, chunk int) int {
	all := (tokens + o.PageSize - 1) / o.PageSize
	if o.Window == 0 {
		return all
	}
	inSight := o.Window - 1 + max(chunk, 1) // From its first slot in a page to its last.
	return min(all, o.sinkPages()+(inSight+o.PageSize-2)/o.PageSize+1)
}

// Least is the fewest pages that any request of so many tokens can get along with: those for the
// shortest chunk, or, for a reservation, for what its match sees and what its end will see.
func (o Options) Least(tokens int) int {
	pages := o.Holds(tokens, o.ChunkAlign)
	if o.Window > 0 {
		all := (tokens + o.PageSize - 1) / o.PageSize
		pages = max(pages, min(all, 2*o.Holds(tokens, 1)))
	}
	return pages
}

// holds is Least for one request whose keys and values are so many tokens, under the limits that
// hold now.
func (s *Scheduler) holds(r *Request, tokens int) int {
	o := s.options
	o.ChunkAlign = max(s.limits.ChunkAlign, longest(r.Embeds))
	if r.Kind == PrepareReceive {
		return o.Least(tokens)
	}
	return o.Holds(tokens, o.ChunkAlign)
}

// chunkMax is the longest chunk: as long as the limits say, and with a window as short as a pool
// needs it to be that is smaller than a request.
func (s *Scheduler) chunkMax() int {
	o, most := &s.options, s.limits.ChunkMax
	if o.Window == 0 {
		return most
	}
	left := o.Pages - s.cache.Counts().Pinned - s.pinPromised - 1
	if s.pagesFor(o.MaxModelLen) <= left {
		return most
	}
	fits := (left-o.sinkPages()-1)*o.PageSize - o.Window + 2
	return min(most, max(fits-fits%s.limits.ChunkAlign, s.limits.ChunkAlign))
}

// slid returns the pages [from, to) that are gone from a table once n positions are computed.
func (s *Scheduler) slid(n int) (from, to int) {
	from = s.options.sinkPages()
	return from, max(from, s.options.firstSeen(n))
}

// slide gives back what slid out of a sequence's window.
func (s *Scheduler) slide(q *sequence) {
	from, to := s.slid(q.computed)
	from = max(from, q.slid)
	if from >= to {
		return
	}
	q.slid = to
	for _, page := range q.pages[from:to] {
		if page != kvcache.None {
			q.gone++
		}
	}
	s.cache.Slide(q.pages, from, to, q.matched/s.options.PageSize)
	s.touch(q)
}

// reserve gives a reservation, beyond the pages it has, those that its end will see.
func (s *Scheduler) reserve(q *sequence) {
	from, to := s.slid(q.end)
	for k := len(q.pages); k < s.pagesFor(q.end); k++ {
		if k >= from && k < to {
			q.pages = append(q.pages, kvcache.None)
		} else {
			s.take(q, 1)
		}
	}
}

// fresh is how many new pages a match and so many tokens after it need.
func (s *Scheduler) fresh(q *sequence, hit prefix.Hit, pages, tokens int) int {
	end := s.pagesFor(hit.Tokens + tokens)
	need := end - pages
	if hit.TakeOver {
		need--
	}
	if q.kind == PrepareReceive {
		from, to := s.slid(q.end)
		from = max(from, s.pagesFor(hit.Tokens))
		need -= max(0, min(to, end)-from)
	}
	return need
}

// written is the page table of a reservation as its writer shall see it: None for all that will
// have slid out, though the sequence may hold some of it until then.
func (s *Scheduler) written(q *sequence) []kvcache.PageID {
	from, to := s.slid(q.end)
	if from >= to {
		return q.pages
	}
	pages := append([]kvcache.PageID{}, q.pages...)
	for k := from; k < to; k++ {
		pages[k] = kvcache.None
	}
	return pages
}

// received is how many positions of a reservation can be built upon when those up to end were
// written: all of them, or, where the next one would see some that were not sent because they will
// have slid out by the reservation's end, only what was matched.
func (s *Scheduler) received(q *sequence, end int) int {
	from, to := s.slid(q.end)
	from = max(from, q.matched/s.options.PageSize, s.options.firstSeen(end))
	if from < min(to, s.pagesFor(end)) {
		return q.matched
	}
	return end
}

// truncate gives back the pages after what is computed, where they were reserved for another end:
// the table may have gaps there.
func (s *Scheduler) truncate(q *sequence) {
	if s.options.Window == 0 {
		return
	}
	keep := s.pagesFor(q.computed)
	if keep >= len(q.pages) {
		return
	}
	s.cache.Release(prefix.Path{}, q.pages[keep:], prefix.Keep, 0)
	q.pages = q.pages[:keep]
	s.recount(q)
}

// rewind takes a sequence back to the start of its prompt, or behind the sinks, if the position
// that it stands at would see pages that it does not have.
func (s *Scheduler) rewind(q *sequence) {
	size := s.options.PageSize
	full := q.computed / size
	seen := q.pages[min(s.options.firstSeen(q.computed), full):full]
	if !slices.Contains(seen, kvcache.None) {
		return
	}
	s.backTo(q, min(s.options.sinkPages(), full)*size)
}

// backTo takes a sequence back to a position that begins a page and is not inside an item, at or
// before the given one, and gives back the pages behind it.
func (s *Scheduler) backTo(q *sequence, at int) {
	size := s.options.PageSize
	for at%size > 0 || q.item(at) != nil {
		at = q.whole(at) / size * size
	}
	keep := at / size
	s.cache.Rewind(&q.path, at)
	s.cache.Release(prefix.Path{}, q.pages[keep:], prefix.Keep, 0)
	q.pages = q.pages[:keep]
	q.computed, q.matched = at, at
	s.recount(q)
}

// recount counts the gaps of a table anew.
func (s *Scheduler) recount(q *sequence) {
	q.gone, q.slid = 0, 0
	for _, page := range q.pages {
		if page == kvcache.None {
			q.gone++
		}
	}
	s.touch(q)
}
