package scheduler

import (
	"fmt"
	"slices"
)

// Submit queues a request, or refuses it: ErrQueueFull, ErrTooLong, ErrWindow, ErrEmptyPrompt,
// ErrItem, ErrMaxNew, ErrDuplicate, ErrPinTooLarge. What is queued fits an empty cache.
func (s *Scheduler) Submit(r Request) error {
	if _, exists := s.byID[r.ID]; exists || s.models[0].quarantine[r.ID] != nil {
		return fmt.Errorf("sequence %d: %w", r.ID, ErrDuplicate)
	}
	if err := s.window(&r); err != nil {
		return err
	}
	if err := s.checkItems(&r); err != nil {
		return err
	}
	if err := s.fits(&r); err != nil {
		return err
	}
	// More than MaxSeqs may hold pages when that was lowered: the policies' table has no slot more
	// for the queue then.
	waiting := len(s.queue) + max(0, len(s.held)-s.limits.MaxSeqs)
	if waiting >= s.limits.MaxQueue {
		return fmt.Errorf("%d requests wait already: %w", len(s.queue), ErrQueueFull)
	}
	q := &sequence{
		id: r.ID, kind: r.Kind, maxNew: r.MaxNew, begin: r.Begin, end: r.End,
		tokens: slices.Clone(r.Prompt), prompt: len(r.Prompt),
		arrival: r.Arrival, deadline: r.Deadline, priority: r.Priority, tenant: s.tenant(r.Tenant),
		class: r.Class, peer: r.Peer, predicted: r.PredictedOutput, userTag: r.UserTag,
		group: r.Group, tokenGap: r.TokenGap, prefixHash: s.prefixHash(&r),
		pin: r.Pinned, slot: -1, embeds: r.Embeds,
		tables: make([]pageTable, len(s.models)),
	}
	if r.Kind == RemoteSend {
		q.tokens = q.tokens[:r.End]
		q.prompt = r.End
		q.embeds = q.itemsIn(0, r.End)
	}
	s.nameItems(q)
	if r.Pinned {
		s.promise(q)
	}
	q.hint = s.peek(q)
	s.byID[r.ID] = q
	s.states[Waiting]++
	s.enqueue(q)
	s.queued(q)
	return nil
}

// window checks the KV window of a request and resolves a negative end.
func (s *Scheduler) window(r *Request) error {
	n := len(r.Prompt)
	if n == 0 {
		return ErrEmptyPrompt
	}
	if r.Kind == Local {
		r.Begin, r.End = 0, 0
		if r.MaxNew < 1 {
			return fmt.Errorf("at most %d output tokens: %w", r.MaxNew, ErrMaxNew)
		}
		return nil
	}
	begin, end := r.Begin, r.End
	if r.End < 0 {
		r.End += n
	}
	switch {
	case r.Kind == RemoteSend && (r.Begin < 0 || r.Begin >= r.End || r.End >= n):
		return fmt.Errorf("begin %d and end %d of %d prompt tokens, need 0 <= begin < end < %d: %w",
			begin, end, n, n, ErrWindow)
	case r.Kind == PrepareReceive && (r.Begin != 0 || r.End < 0 || r.End >= n):
		return fmt.Errorf("begin %d and end %d of %d prompt tokens, need begin = 0 and "+
			"0 <= end < %d: %w",
			begin, end, n, n, ErrWindow)
	}
	return nil
}

// fits refuses what an otherwise empty cache could not hold to its end. The last token that is
// sampled needs no KV; one page must stay free beside any sequence.
func (s *Scheduler) fits(r *Request) error {
	tokens := len(r.Prompt) + max(r.MaxNew, 1)
	most := s.options.MaxModelLen
	if len(r.Prompt) >= most || r.Kind != RemoteSend && tokens > most {
		return fmt.Errorf("%d prompt and %d output tokens of at most %d in all: %w",
			len(r.Prompt), r.MaxNew, most, ErrTooLong)
	}
	kv := tokens - 1
	if r.Kind == RemoteSend {
		kv = r.End
	}
	whole := s.limits.ChunkAlign
	if r.Pinned {
		whole = max(whole, longest(r.Embeds), s.longestItem())
	}
	for i, m := range s.models {
		if err := m.fits(r, kv, s.limits.ChunkAlign, whole); err != nil {
			if i > 0 {
				err = fmt.Errorf("draft %d: %w", i, err)
			}
			return err
		}
	}
	return nil
}

// longestItem is the most positions of one item of those who are here, at least 1.
func (s *Scheduler) longestItem() int {
	most := 1
	for _, q := range s.byID {
		most = max(most, longest(q.embeds))
	}
	return most
}

// fits refuses what one model's pages could not hold. Whole is how many tokens a step must be able
// to compute of one sequence beside what is pinned: pages that are pinned make chunks shorter where
// a window slides, and an item that somebody waits with must not become too long for any.
func (m *memory) fits(r *Request, kv, align, whole int) error {
	o := &m.options
	taken := m.cache.Counts().Pinned + m.pinPromised
	if need, left := m.holds(r, kv, align), o.Pages-taken; need+1 > left {
		return fmt.Errorf("%d tokens need %d pages and one to spare, the cache has %d: %w",
			kv, need, left, ErrTooLong)
	}
	if !r.Pinned {
		return nil
	}
	pages := o.Holds(len(r.Prompt), 1)
	full := m.holds(&Request{Kind: PrepareReceive}, o.MaxModelLen, whole)
	if m.cache.Off() || o.Pages-taken-pages < full+1 {
		return fmt.Errorf("pinning %d of %d pages, %d pinned already, must leave %d for "+
			"a full request: %w",
			pages, o.Pages, taken, full+1, ErrPinTooLarge)
	}
	return nil
}
