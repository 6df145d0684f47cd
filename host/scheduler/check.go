package scheduler

import (
	"fmt"

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
	// Pages: free, referenced by sequences, evictable, pinned in the tree but unreferenced, in
	// quarantine; they sum to Total.
	Free, Held, Evictable, Pinned, Quarantined, Total int
	// Evicted counts pages ever evicted, Preempted sequences ever preempted, MatchedTokens and
	// QueriedTokens the prompt tokens found in, and asked of, the prefix cache at admissions.
	Evicted, Preempted           uint64
	MatchedTokens, QueriedTokens uint64
}

// Stats returns the gauges and counters.
func (s *Scheduler) Stats() Stats {
	pages, tree := s.pool.Counts(), s.cache.Counts()
	return Stats{
		States: s.states, Moves: s.moves, Queued: len(s.queue), Holding: len(s.held),
		Free: pages.Free, Held: pages.Held, Evictable: tree.Evictable, Pinned: tree.PinnedIdle,
		Quarantined: pages.Quarantined, Total: pages.Total,
		Evicted: tree.Evicted, Preempted: s.preempted,
		MatchedTokens: s.matched, QueriedTokens: s.queried,
	}
}

// references counts for each page how many tables, and copies under way, hold it.
func (s *Scheduler) references() []int {
	refs := make([]int, s.options.Pages)
	for _, list := range [][]*sequence{s.held, s.leaving} {
		for _, q := range list {
			for _, page := range q.pages {
				if page != kvcache.None {
					refs[page]++
				}
			}
		}
	}
	for _, page := range s.tails {
		refs[page]++
	}
	return refs
}

// Leaked counts pages that are referenced and that no sequence holds, or in quarantine and that no
// reservation waits for. It must be 0.
func (s *Scheduler) Leaked() int {
	leaked := s.pool.Counts().Quarantined
	for _, pages := range s.quarantine {
		leaked -= len(pages)
	}
	for page, refs := range s.references() {
		if refs == 0 && s.pool.Refs(kvcache.PageID(page)) > 0 {
			leaked++
		}
	}
	return leaked
}

// Check verifies every invariant of the package and names the first that is broken.
func (s *Scheduler) Check() error {
	if err := s.pool.Check(); err != nil {
		return err
	}
	if err := s.cache.Check(); err != nil {
		return err
	}
	for page, refs := range s.references() {
		if got := s.pool.Refs(kvcache.PageID(page)); got != refs {
			return fmt.Errorf("scheduler: page %d has %d references, tables hold it %d times",
				page, got, refs)
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
	case s.pagesFor(q.computed) > len(q.pages):
		return fmt.Errorf("scheduler: sequence %d has computed %d positions in %d pages",
			q.id, q.computed, len(q.pages))
	case !q.holds && q.state == Waiting && (len(q.pages) > 0 || q.computed > 0):
		return fmt.Errorf("scheduler: sequence %d waits in the queue with %d pages",
			q.id, len(q.pages))
	case q.state == Decoding && q.computed != len(q.tokens)-1:
		return fmt.Errorf("scheduler: sequence %d decodes with %d of %d tokens computed",
			q.id, q.computed, len(q.tokens))
	case q.path.Tokens() > q.computed:
		return fmt.Errorf("scheduler: sequence %d has published %d of %d computed tokens",
			q.id, q.path.Tokens(), q.computed)
	case q.kind == PrepareReceive && !q.delivered && q.path.Tokens() > q.matched:
		return fmt.Errorf("scheduler: sequence %d has published what was not delivered", q.id)
	}
	return s.checkWindow(q)
}

// checkWindow verifies that a table holds what later positions see and nothing else.
func (s *Scheduler) checkWindow(q *sequence) error {
	from, to := s.slid(q.computed)
	gone := 0
	for k, page := range q.pages {
		if page == kvcache.None {
			gone++
		}
		out := k >= from && k < to
		if reserved := q.kind == PrepareReceive; !reserved && out != (page == kvcache.None) {
			return fmt.Errorf("scheduler: sequence %d has computed %d positions and page %d at %d",
				q.id, q.computed, page, k)
		}
	}
	if gone != q.gone {
		return fmt.Errorf("scheduler: sequence %d counts %d pages gone, %d are",
			q.id, q.gone, gone)
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
