package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/kvcache"
)

// Stats are the scheduler's gauges and counters.
type Stats struct {
	// States counts the sequences in each state; Finished are those that a transfer still reads.
	States [States]int
	// Moves counts the moves [from][to] ever made.
	Moves [States][States]uint64
	// Queued is how many wait without pages, Holding how many count against MaxSeqs.
	Queued, Holding int
	// Pages of all models: free, referenced by sequences, evictable, pinned in the tree but
	// unreferenced, in quarantine; they sum to Total.
	Free, Held, Evictable, Pinned, Quarantined, Total int
	// Evicted counts pages ever evicted, Preempted sequences ever preempted, MatchedTokens and
	// QueriedTokens the prompt tokens found in, and asked of, the prefix cache at admissions.
	Evicted, Preempted           uint64
	MatchedTokens, QueriedTokens uint64
}

// Stats returns the gauges and counters.
func (s *Scheduler) Stats() Stats {
	st := Stats{
		States: s.states, Moves: s.moves, Queued: len(s.queue), Holding: len(s.held),
		Preempted: s.preempted, MatchedTokens: s.matched, QueriedTokens: s.queried,
	}
	for _, m := range s.models {
		pages, tree := m.pool.Counts(), m.cache.Counts()
		st.Free += pages.Free
		st.Held += pages.Held
		st.Evictable += tree.Evictable
		st.Pinned += tree.PinnedIdle
		st.Quarantined += pages.Quarantined
		st.Total += pages.Total
		st.Evicted += tree.Evicted
	}
	return st
}

// references counts for each page of a model how many tables, and copies under way, hold it. The
// list is valid until the next call.
func (s *Scheduler) references(model int) []int {
	refs := slices.Grow(s.refs[:0], s.models[model].options.Pages)
	refs = refs[:s.models[model].options.Pages]
	clear(refs)
	s.refs = refs
	for _, list := range [][]*sequence{s.held, s.leaving} {
		for _, q := range list {
			for _, page := range q.tables[model].pages {
				if page != kvcache.None {
					refs[page]++
				}
			}
		}
	}
	for _, page := range s.models[model].tails {
		refs[page]++
	}
	return refs
}

// Leaked counts pages that are referenced and that no sequence holds, or in quarantine and that no
// reservation waits for. It must be 0.
func (s *Scheduler) Leaked() (leaked int) {
	for i, m := range s.models {
		leaked += m.pool.Counts().Quarantined
		for _, pages := range m.quarantine {
			leaked -= len(pages)
		}
		for page, refs := range s.references(i) {
			if refs == 0 && m.pool.Refs(kvcache.PageID(page)) > 0 {
				leaked++
			}
		}
	}
	return leaked
}

// Check verifies every invariant of the package and names the first that is broken.
func (s *Scheduler) Check() error {
	for i := range s.models {
		if err := s.checkMemory(i); err != nil {
			return fmt.Errorf("model %d: %w", i, err)
		}
	}
	if leaked := s.Leaked(); leaked != 0 {
		return fmt.Errorf("scheduler: %d pages leaked", leaked)
	}
	if err := s.checkLists(); err != nil {
		return err
	}
	if err := s.checkTenants(); err != nil {
		return err
	}
	return s.checkTable()
}

// checkMemory verifies the pages of one model.
func (s *Scheduler) checkMemory(model int) error {
	m := s.models[model]
	if err := m.pool.Check(); err != nil {
		return err
	}
	if err := m.cache.Check(); err != nil {
		return err
	}
	for page, refs := range s.references(model) {
		if got := m.pool.Refs(kvcache.PageID(page)); got != refs {
			return fmt.Errorf("scheduler: page %d has %d references, tables hold it %d times",
				page, got, refs)
		}
	}
	return nil
}

// checkLists verifies that each sequence is in the one list that its state says.
func (s *Scheduler) checkLists() error {
	var states [States]int
	seen := 0
	for _, list := range []struct {
		sequences []*sequence
		holds     bool
		left      bool
	}{{s.queue, false, false}, {s.held, true, false}, {s.leaving, false, true}} {
		for _, q := range list.sequences {
			seen++
			states[q.state]++
			if s.byID[q.id] != q || q.holds != list.holds || list.left != (q.state == Finished) {
				return fmt.Errorf("scheduler: sequence %d is %v, holds %t, in the wrong list",
					q.id, q.state, q.holds)
			}
			if err := s.checkSequence(q); err != nil {
				return err
			}
		}
	}
	if !slices.IsSortedFunc(s.queue, byArrival) {
		return errors.New("scheduler: the queue is not in the order of arrival")
	}
	if states != s.states || seen != len(s.byID) {
		return fmt.Errorf("scheduler: states %v, counted %v; %d of %d sequences in lists",
			s.states, states, seen, len(s.byID))
	}
	return nil
}

// checkTenants verifies that the table counts what the lists hold.
func (s *Scheduler) checkTenants() error {
	counted := make([]abi.Tenant, len(s.tenants))
	for _, q := range s.queue {
		counted[q.tenant].Waiting++
	}
	for _, q := range s.held {
		counted[q.tenant].Running++
	}
	for i, t := range s.tenants {
		if t.Index != uint32(i) || t.Waiting != counted[i].Waiting ||
			t.Running != counted[i].Running {
			return fmt.Errorf("scheduler: tenant %d counts %d waiting and %d running, there are "+
				"%d and %d", i, t.Waiting, t.Running, counted[i].Waiting, counted[i].Running)
		}
	}
	return nil
}

// checkSequence verifies one sequence's numbers.
func (s *Scheduler) checkSequence(q *sequence) error {
	switch {
	case s.pagesFor(q.computed) > q.pages():
		return fmt.Errorf("scheduler: sequence %d has computed %d positions in %d pages",
			q.id, q.computed, q.pages())
	case !q.holds && q.state == Waiting && (q.pages() > 0 || q.computed > 0):
		return fmt.Errorf("scheduler: sequence %d waits in the queue with %d pages",
			q.id, q.pages())
	case q.state == Decoding && q.computed != len(q.tokens)-1:
		return fmt.Errorf("scheduler: sequence %d decodes with %d of %d tokens computed",
			q.id, q.computed, len(q.tokens))
	}
	for i, m := range s.models {
		if err := m.checkPages(q, &q.tables[i]); err != nil {
			return fmt.Errorf("model %d: sequence %d: %w", i, q.id, err)
		}
	}
	return nil
}

// checkPages verifies a sequence's table in one model: it holds what later positions see and
// nothing else, and is as long as the others.
func (m *memory) checkPages(q *sequence, t *pageTable) error {
	switch {
	case len(t.pages) != q.pages():
		return fmt.Errorf("a table of %d pages, the main model's has %d", len(t.pages), q.pages())
	case t.path.Tokens() > q.computed:
		return fmt.Errorf("%d tokens published, %d computed", t.path.Tokens(), q.computed)
	case q.kind == PrepareReceive && !q.delivered && t.path.Tokens() > q.matched:
		return fmt.Errorf("what was not delivered is published")
	}
	from, to := m.options.slid(q.computed)
	gone := 0
	for k, page := range t.pages {
		if page == kvcache.None {
			gone++
		}
		out := k >= from && k < to
		fixed := q.kind == PrepareReceive || q.state == Finished // Nobody computes more of it.
		if !fixed && out != (page == kvcache.None) {
			return fmt.Errorf("%d positions computed and page %d at %d", q.computed, page, k)
		}
	}
	if gone != t.gone {
		return fmt.Errorf("%d pages gone are counted, %d are", t.gone, gone)
	}
	return nil
}

// checkTable verifies that slots and sequences name each other.
func (s *Scheduler) checkTable() error {
	live := 0
	for slot, q := range s.table.owner[:s.table.high] {
		if q == nil {
			continue
		}
		live++
		if q.slot != slot || s.table.records[slot].ID != uint64(q.id) {
			return fmt.Errorf("scheduler: slot %d is sequence %d's, which names slot %d",
				slot, q.id, q.slot)
		}
	}
	if live+len(s.table.free) != s.table.high {
		return fmt.Errorf("scheduler: %d slots live and %d free of %d",
			live, len(s.table.free), s.table.high)
	}
	return nil
}
