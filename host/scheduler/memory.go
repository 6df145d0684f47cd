package scheduler

import (
	"fmt"
	"slices"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/prefix"
)

// An engine may run drafts beside its main model, over the same tokens. Each model has a pool of
// its own, a window of its own, and so a page table of its own in each sequence; what a sequence
// has computed, and what it found in the prefix cache, is the same in all of them. A chunk runs
// where every model has pages for it.

// Memory says what pages a model has.
type Memory struct {
	// Pages is the size of the pool.
	Pages int
	// PrefixPages is how many unreferenced pages the prefix cache may keep: -1 whatever is free, 0
	// none, which also turns matching off.
	PrefixPages int
	// Window is how many tokens, itself included, a token sees in every layer, 0 for all, and Sinks
	// how many first ones it sees beside them. Pages that slid out are given back.
	Window, Sinks int
}

// main is the main model's.
func (o *Options) main() Memory {
	return Memory{Pages: o.Pages, PrefixPages: o.PrefixPages, Window: o.Window, Sinks: o.Sinks}
}

// of are the options with the numbers of one model.
func (o Options) of(m Memory) Options {
	o.Pages, o.PrefixPages, o.Window, o.Sinks = m.Pages, m.PrefixPages, m.Window, m.Sinks
	o.Drafts = nil
	return o
}

// check refuses what no pool can be.
func (m *Memory) check() error {
	switch {
	case m.Pages < 2:
		return fmt.Errorf("a pool of %d pages: it needs at least 2", m.Pages)
	case m.Window < 0 || m.Sinks < 0 || m.Sinks > 0 && m.Window == 0:
		return fmt.Errorf("a window of %d tokens and %d sinks: neither may be negative, and "+
			"sinks need a window", m.Window, m.Sinks)
	}
	return nil
}

// memory is the pages of one model.
type memory struct {
	options Options // with the numbers of this model
	pool    *kvcache.Pool
	cache   *prefix.Cache

	pinPromised int // Pages that queued pinned prompts will pin.
	// tails are the sources of the plan's copies, referenced until it has run.
	tails      []kvcache.PageID
	quarantine map[SequenceID][]kvcache.PageID

	grip grip // Of the sequence that is being admitted.
}

// grip is what a sequence is about to take of a model's pages.
type grip struct {
	hit   prefix.Hit
	pages []kvcache.PageID
	need  int // New pages beyond them.
}

// pageTable is a sequence's pages in one model.
type pageTable struct {
	// pages has None where a page slid out of the window; gone counts those, and slid is the index
	// up to which all have gone that could. path is how much of it is in the prefix tree.
	pages []kvcache.PageID
	gone  int
	slid  int
	path  prefix.Path
	// pinPages is what is promised to the prompt, which shall be pinned.
	pinPages int
}

func newMemory(o Options, m Memory) *memory {
	o = o.of(m)
	pool := kvcache.NewPool(m.Pages)
	return &memory{
		options: o, pool: pool, quarantine: map[SequenceID][]kvcache.PageID{},
		cache: prefix.New(pool, prefix.Options{PageSize: o.PageSize, Budget: m.PrefixPages,
			Window: m.Window, Sinks: m.Sinks}),
	}
}

// held is how many pages it references.
func (t *pageTable) held() int { return len(t.pages) - t.gone }

// recount counts the gaps anew.
func (t *pageTable) recount() {
	t.gone, t.slid = 0, 0
	for _, page := range t.pages {
		if page == kvcache.None {
			t.gone++
		}
	}
}

// Available is how many pages can be handed out in the model that has fewest.
func (s *Scheduler) Available() int {
	least := s.models[0].cache.Available()
	for _, m := range s.models[1:] {
		least = min(least, m.cache.Available())
	}
	return least
}

// reserve makes sure that so many pages are free in every model. It reports false, and evicts
// nothing, where that is not possible.
func (s *Scheduler) reserve(pages int) bool {
	if pages > s.Available() {
		return false
	}
	for _, m := range s.models {
		m.cache.Reserve(pages)
	}
	return true
}

// take moves so many reserved pages of each model to a sequence.
func (s *Scheduler) take(q *sequence, pages int) {
	for i, m := range s.models {
		m.take(&q.tables[i], pages)
	}
}

func (m *memory) take(t *pageTable, pages int) {
	for range pages {
		page, ok := m.pool.Take()
		if !ok {
			panic("scheduler: a reserved page is not there")
		}
		t.pages = append(t.pages, page)
	}
}

// match finds what the prefix caches of all models hold of a prompt up to limit, short of the last
// position, and of each item all or nothing. It is left in their grips.
func (s *Scheduler) match(q *sequence, limit int) (tokens int) {
	for {
		tokens = limit
		for i, m := range s.models {
			g := &m.grip
			g.hit, g.pages = m.cache.Match(q.tokens[:limit], q.tables[i].pages[:0])
			tokens = min(tokens, g.hit.Tokens)
		}
		tokens = q.whole(tokens)
		if !slices.ContainsFunc(s.models, func(m *memory) bool {
			return m.grip.hit.Tokens != tokens
		}) {
			return tokens
		}
		s.undo()
		limit = tokens + 1
	}
}

// undo gives up what match found.
func (s *Scheduler) undo() {
	for _, m := range s.models {
		m.cache.Undo(m.grip.hit, m.grip.pages)
		m.grip = grip{}
	}
}

// copies reports whether some model would copy a tail page that match found.
func (s *Scheduler) copies() bool {
	return slices.ContainsFunc(s.models, func(m *memory) bool {
		return m.grip.hit.Tail != kvcache.None && !m.grip.hit.TakeOver
	})
}

// peek is the length that match would find. It changes nothing.
func (s *Scheduler) peek(q *sequence) int {
	for limit := q.target(); ; {
		least, most := limit, 0
		for _, m := range s.models {
			found := m.cache.Peek(q.tokens[:limit])
			least, most = min(least, found), max(most, found)
		}
		whole := q.whole(least)
		if whole == most {
			return whole
		}
		limit = whole + 1
	}
}

// roomFor is the one predicate that admits a sequence: in each model the pages that it needs for
// what was matched and so many tokens after it, and those to spare, are free or evictable.
func (s *Scheduler) roomFor(q *sequence, tokens int) bool {
	for _, m := range s.models {
		m.fresh(q, tokens)
		if m.grip.need+s.spare(true) > m.cache.Available()-s.turn.owed {
			return false
		}
	}
	return true
}

// settle makes what was matched, and the new pages that are needed, the sequence's own.
func (s *Scheduler) settle(q *sequence) {
	copied := false
	for i, m := range s.models {
		g, t := &m.grip, &q.tables[i]
		t.pages, t.path = g.pages, g.hit.Path
		m.cache.Reserve(g.need + s.spare(true))
		tail := g.hit.Tokens % m.options.PageSize
		switch {
		case g.hit.TakeOver:
			t.pages = append(t.pages, m.cache.TakeTail(g.hit))
		case tail > 0:
			m.take(t, 1)
			g.need--
			// Referenced until the copy has run, so that nobody is given the source meanwhile.
			m.tails = append(m.tails, g.hit.Tail)
			b := s.plan.Input(i)
			b.Copies = append(b.Copies, batch.Copy{
				From: g.hit.Tail, To: t.pages[len(t.pages)-1], Tokens: tail,
			})
			copied = true
		}
		if q.kind == PrepareReceive {
			m.reserve(q, t)
		} else {
			m.take(t, g.need)
		}
		t.recount()
	}
	if copied {
		s.copied = append(s.copied, q)
	}
	tokens := s.models[0].grip.hit.Tokens
	q.computed, q.matched = tokens, tokens
	for _, m := range s.models {
		m.grip = grip{}
	}
	s.touch(q)
}

// publish makes what a sequence has computed matchable in every model.
func (s *Scheduler) publish(q *sequence, share bool) {
	for i, m := range s.models {
		t := &q.tables[i]
		m.cache.Publish(&t.path, q.tokens[:q.computed], t.pages, share)
	}
}

// pinNow pins a prompt that is computed.
func (s *Scheduler) pinNow(q *sequence) {
	for _, m := range s.models {
		m.cache.Pin(q.tokens[:q.prompt])
	}
	s.unpromise(q)
}

// promise keeps pages for a prompt that shall be pinned once it is computed.
func (s *Scheduler) promise(q *sequence) {
	for i, m := range s.models {
		q.tables[i].pinPages = m.options.Holds(q.prompt, 1)
		m.pinPromised += q.tables[i].pinPages
	}
}

// unpromise takes a prompt that has been pinned, or never will be, off what is promised.
func (s *Scheduler) unpromise(q *sequence) {
	for i, m := range s.models {
		m.pinPromised -= q.tables[i].pinPages
		q.tables[i].pinPages = 0
	}
	q.pin = false
}

// isolate moves the pages that a writer may write to from the sequence to quarantine. They are the
// sequence's alone: what it matched comes before them, and undelivered pages are not in the tree.
func (s *Scheduler) isolate(q *sequence) {
	own := q.matched / s.options.PageSize
	for i, m := range s.models {
		t := &q.tables[i]
		pages := []kvcache.PageID{}
		for _, page := range t.pages[own:] {
			if page != kvcache.None {
				m.pool.Quarantine(page)
				pages = append(pages, page)
			}
		}
		t.pages = t.pages[:own]
		m.quarantine[q.id] = pages
	}
}

// keepPages gives back the pages of a sequence from an index on.
func (s *Scheduler) keepPages(q *sequence, pages int) {
	for i, m := range s.models {
		t := &q.tables[i]
		m.cache.Release(prefix.Path{}, t.pages[pages:], prefix.Keep, 0)
		t.pages = t.pages[:pages]
		t.recount()
	}
	s.touch(q)
}
