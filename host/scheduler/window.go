package scheduler

import (
	"slices"

	"github.com/kvrelay/engine/host/kvcache"
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
// computed at most chunk at a time: in the model that needs most of them.
func (o *Options) Holds(tokens, chunk int) int {
	most := o.holds(tokens, chunk)
	for _, m := range o.Drafts {
		draft := o.of(m)
		most = max(most, draft.holds(tokens, chunk))
	}
	return most
}

// holds is Holds of the main model.
func (o *Options) holds(tokens, chunk int) int {
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
	pages := o.holds(tokens, o.ChunkAlign)
	if o.Window > 0 {
		all := (tokens + o.PageSize - 1) / o.PageSize
		pages = max(pages, min(all, 2*o.holds(tokens, 1)))
	}
	for _, m := range o.Drafts {
		pages = max(pages, o.of(m).Least(tokens))
	}
	return pages
}

// holds is Least for one request whose keys and values are so many tokens, under the limits that
// hold now.
func (m *memory) holds(r *Request, tokens, align int) int {
	o := m.options
	o.ChunkAlign = max(align, longest(r.Embeds))
	if r.Kind == PrepareReceive {
		return o.Least(tokens)
	}
	return o.Holds(tokens, o.ChunkAlign)
}

// chunkMax is the longest chunk: as long as the limits say, and with a window as short as the
// tightest pool needs it to be that is smaller than a request.
func (s *Scheduler) chunkMax(align int) int {
	most := s.limits.ChunkMax
	for _, m := range s.models {
		most = min(most, m.chunkMax(align, most))
	}
	return most
}

// unit is what divides a sequence's chunks: as the limits say, or, where they changed after it came
// and a pool cannot hold so long a chunk of it, any length does.
func (s *Scheduler) unit(q *sequence) int {
	align, kv := s.limits.ChunkAlign, q.end
	if align == 1 {
		return 1
	}
	if q.kind == Local {
		kv = q.prompt + q.maxNew - 1
	}
	for _, m := range s.models {
		left := m.options.Pages - m.cache.Counts().Pinned - m.pinPromised
		if m.options.Window > 0 && m.options.Holds(kv, align)+1 > left {
			return 1
		}
	}
	return align
}

func (m *memory) chunkMax(align, most int) int {
	o := &m.options
	if o.Window == 0 {
		return most
	}
	left := o.Pages - m.cache.Counts().Pinned - m.pinPromised - 1
	if (o.MaxModelLen+o.PageSize-1)/o.PageSize <= left {
		return most
	}
	fits := (left-o.sinkPages()-1)*o.PageSize - o.Window + 2
	return max(fits-fits%align, align)
}

// slid returns the pages [from, to) that are gone from a table once n positions are computed.
func (o *Options) slid(n int) (from, to int) {
	from = o.sinkPages()
	return from, max(from, o.firstSeen(n))
}

// slide gives back what slid out of a sequence's windows.
func (s *Scheduler) slide(q *sequence) {
	for i, m := range s.models {
		t := &q.tables[i]
		from, to := m.options.slid(q.computed)
		from = max(from, t.slid)
		if from >= to {
			continue
		}
		t.slid = to
		for _, page := range t.pages[from:to] {
			if page != kvcache.None {
				t.gone++
			}
		}
		m.cache.Slide(t.pages, from, to, q.matched/s.options.PageSize)
		s.touch(q)
	}
}

// reserve gives a reservation, beyond the pages it has, those that its end will see.
func (m *memory) reserve(q *sequence, t *pageTable) {
	from, to := m.options.slid(q.end)
	for k := len(t.pages); k*m.options.PageSize < q.end; k++ {
		if k >= from && k < to {
			t.pages = append(t.pages, kvcache.None)
		} else {
			m.take(t, 1)
		}
	}
}

// fresh notes how many new pages what was matched and so many tokens after it need.
func (m *memory) fresh(q *sequence, tokens int) {
	o, g := &m.options, &m.grip
	pages := func(n int) int { return (n + o.PageSize - 1) / o.PageSize }
	end := pages(g.hit.Tokens + tokens)
	g.need = end - len(g.pages)
	if g.hit.TakeOver {
		g.need--
	}
	if q.kind == PrepareReceive {
		from, to := o.slid(q.end)
		from = max(from, pages(g.hit.Tokens))
		g.need -= max(0, min(to, end)-from)
	}
}

// written is a reservation's page table as its writer shall see it: None for all that will have
// slid out, though the sequence may hold some of it until then.
func (m *memory) written(q *sequence, t *pageTable) []kvcache.PageID {
	from, to := m.options.slid(q.end)
	if from >= to {
		return t.pages
	}
	pages := append([]kvcache.PageID{}, t.pages...)
	for k := from; k < to; k++ {
		pages[k] = kvcache.None
	}
	return pages
}

// received is how many positions of a reservation can be built upon when those up to end were
// written: all of them, or, where the next one would see some that were not sent because they will
// have slid out by the reservation's end, only what was matched.
func (s *Scheduler) received(q *sequence, end int) int {
	for _, m := range s.models {
		from, to := m.options.slid(q.end)
		from = max(from, q.matched/s.options.PageSize, m.options.firstSeen(end))
		if from < min(to, s.pagesFor(end)) {
			return q.matched
		}
	}
	return end
}

// truncate gives back the pages after what is computed, where some were reserved for another end:
// a table may have gaps there.
func (s *Scheduler) truncate(q *sequence) {
	windows := slices.ContainsFunc(s.models, func(m *memory) bool { return m.options.Window > 0 })
	if keep := s.pagesFor(q.computed); windows && keep < q.pages() {
		s.keepPages(q, keep)
	}
}

// rewind takes a sequence back to the last position, at or before the given one, that begins a
// page, is inside no item, and sees nothing that it does not have.
func (s *Scheduler) rewind(q *sequence, at int) {
	for size := s.options.PageSize; at > 0; at = q.whole(at-1) / size * size {
		if at%size == 0 && q.item(at) == nil && s.sees(q, at) {
			break
		}
	}
	for i, m := range s.models {
		m.cache.Rewind(&q.tables[i].path, at)
	}
	q.computed, q.matched = at, min(q.matched, at)
}

// sees reports whether the tables have all full pages that a position sees.
func (s *Scheduler) sees(q *sequence, position int) bool {
	full := position / s.options.PageSize
	for i, m := range s.models {
		pages := q.tables[i].pages
		if slices.Contains(pages[min(m.options.firstSeen(position), full):full], kvcache.None) ||
			slices.Contains(pages[:min(m.options.sinkPages(), full)], kvcache.None) {
			return false
		}
	}
	return true
}
