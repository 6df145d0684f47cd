package scheduler

import (
	"fmt"
	"math"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/batch"
)

// A prompt may hold vectors in place of tokens (batch.Embedding). Such an item is computed in one
// step and found in the prefix cache whole, or not at all: no chunk, match or window ends inside
// one. The prefix tree knows tokens only, so each different item is given a negative number that
// stands at all of its positions.

// maxBarred is how many steps in a row others may keep a whole item from the budget that it needs
// at once. Then it comes before them, running decodes included.
const maxBarred = 8

// keptNames is how many items are still known by their number after the last sequence that had
// them. One that was forgotten is not found in the prefix cache any more.
const keptNames = 4096

// names gives items their numbers.
type names struct {
	known   map[[32]byte]*name
	numbers map[int32]bool // Those of known.
	idle    []idleName     // Left without a sequence, in that order; some have one again.
	last    int32          // The number given last; they count down.
	stamp   uint64
}

type name struct {
	number int32
	uses   int    // How often live sequences have it.
	stamp  uint64 // When it was last left without one.
}

type idleName struct {
	digest [32]byte
	stamp  uint64
}

func newNames() names {
	return names{known: map[[32]byte]*name{}, numbers: map[int32]bool{}, last: -1}
}

// take returns the number of an item; ok is false when none are left.
func (n *names) take(digest [32]byte) (number int32, ok bool) {
	known := n.known[digest]
	for known == nil {
		if n.last == math.MinInt32 {
			return 0, false
		}
		if n.last--; !n.numbers[n.last] {
			known = &name{number: n.last}
			n.known[digest], n.numbers[n.last] = known, true
		}
	}
	known.uses++
	return known.number, true
}

// release says that a sequence with an item is gone.
func (n *names) release(digest [32]byte) {
	known := n.known[digest]
	if known.uses--; known.uses > 0 {
		return
	}
	n.stamp++
	known.stamp = n.stamp
	n.idle = append(n.idle, idleName{digest, n.stamp})
	n.shrink(keptNames)
}

// shrink forgets the oldest idle items beyond so many.
func (n *names) shrink(most int) {
	for len(n.idle) > most {
		i := n.idle[0]
		n.idle = n.idle[1:]
		known := n.known[i.digest]
		if known != nil && known.uses == 0 && known.stamp == i.stamp {
			delete(n.numbers, known.number)
			delete(n.known, i.digest)
		}
	}
}

// nameItems puts the numbers of a sequence's items in the place of their tokens. When all numbers
// have been given, what no live sequence needs is forgotten, the prefix cache with it, and they
// start over.
func (s *Scheduler) nameItems(q *sequence) {
	for i := range q.embeds {
		e := &q.embeds[i]
		number, ok := s.names.take(e.Digest)
		if !ok {
			s.Reset()
			s.names.shrink(0)
			s.names.last = -1
			number, _ = s.names.take(e.Digest) // Sequences hold fewer items than there are numbers.
		}
		for at := e.Start; at < e.End(); at++ {
			q.tokens[at] = number
		}
	}
}

// unnameItems is called when a sequence is gone from the prefix tree.
func (s *Scheduler) unnameItems(q *sequence) {
	for i := range q.embeds {
		s.names.release(q.embeds[i].Digest)
	}
	q.embeds = nil
}

// checkItems refuses items that do not lie one after another in the prompt, and whole ones that no
// step can compute.
func (s *Scheduler) checkItems(r *Request) error {
	end := 0
	for i := range r.Embeds {
		e := &r.Embeds[i]
		if e.Start < end || e.Rows < 1 || e.Rows > len(r.Prompt)-e.Start {
			return fmt.Errorf("vectors for positions [%d, %d) of %d, after %d: %w",
				e.Start, e.End(), len(r.Prompt), end, ErrItem)
		}
		if most := s.chunkMax(s.limits.ChunkAlign); e.Rows > most {
			return fmt.Errorf("an item of %d positions is computed at once, and a step has room "+
				"for %d (scheduler.chunk_max, scheduler.token_budget): %w", e.Rows, most, ErrItem)
		}
		end = e.End()
		if r.Kind != Local && e.Start < r.End && r.End < end {
			return fmt.Errorf("the window ends at %d, inside an item for [%d, %d): %w",
				r.End, e.Start, end, ErrWindow)
		}
	}
	return nil
}

// longest is the most positions of one item, at least 1.
func longest(items []batch.Embedding) int {
	most := 1
	for i := range items {
		most = max(most, items[i].Rows)
	}
	return most
}

// item is the item with positions before and after at, or nil.
func (q *sequence) item(at int) *batch.Embedding {
	for i := range q.embeds {
		if e := &q.embeds[i]; e.Start < at && at < e.End() {
			return e
		}
	}
	return nil
}

// whole is at, or the start of the item that at lies inside.
func (q *sequence) whole(at int) int {
	if e := q.item(at); e != nil {
		return e.Start
	}
	return at
}

// itemsIn are the items within [start, end), of which none reaches across its ends.
func (q *sequence) itemsIn(start, end int) []batch.Embedding {
	from := 0
	for from < len(q.embeds) && q.embeds[from].Start < start {
		from++
	}
	to := from
	for to < len(q.embeds) && q.embeds[to].Start < end {
		to++
	}
	return q.embeds[from:to]
}

// fit shortens a chunk [from, from+tokens) that ends inside an item to what lies before the item.
// Where nothing does, the chunk is the item, if the budget has room for it; whoever keeps it out is
// counted.
func (s *Scheduler) fit(q *sequence, from, tokens int) int {
	e := q.item(from + tokens)
	switch {
	case e == nil:
		return tokens
	case e.Start > from:
		return e.Start - from
	case e.Rows > s.turn.budget:
		s.bar(q)
		return 0
	}
	return e.Rows
}

// bar counts the steps in a row that kept a whole item out. When they are too many the next step
// begins with it.
func (s *Scheduler) bar(q *sequence) {
	switch q.barredAt {
	case s.step:
		return
	case s.step - 1:
		q.barred++
	default:
		q.barred = 1
	}
	q.barredAt = s.step
	if q.barred >= maxBarred && s.barred == nil {
		s.barred = q
	}
}

// refuseBarred says of a sequence that did not run that a whole item of it was kept out, if so.
func (s *Scheduler) refuseBarred(q *sequence) {
	if q.barredAt == s.step {
		s.refuse(q, abi.RefusalBudget)
	}
}

// letIn puts the sequence that was kept out for too long before all others and keeps room for its
// longest item.
func (s *Scheduler) letIn() {
	q := s.barred
	if s.barred = nil; q == nil || q.state != Waiting && q.state != Prefilling {
		return
	}
	q.forcedAt, q.guarded = s.step, true
	s.note(q, moment{what: PutFirst})
	s.plan.Decision.Forced++
	s.turn.kept = min(longest(q.embeds), s.turn.budget)
	order := append(s.turn.spare[:0], entry{q: q, tokens: auto})
	for _, e := range s.turn.order {
		if e.q != q || e.action != abi.ActionRun {
			order = append(order, e)
		}
	}
	s.turn.order, s.turn.spare = order, s.turn.order
}
