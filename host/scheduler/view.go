package scheduler

import (
	"slices"
	"time"

	"github.com/kvrelay/engine/abi"
)

// hintsPerStep is how many waiting requests are looked up in the prefix cache anew in a step, so
// that what policies are told of it stays near the truth at a bounded price.
const hintsPerStep = 4

// table keeps the policy's records. A request keeps its slot for as long as it lives; only what
// changed is rewritten.
type table struct {
	records []abi.Record
	owner   []*sequence
	free    []uint32 // Slots below high without a request.
	high    int
	touched []*sequence // May differ from their records.
	changed []uint32
	marked  []bool // The slot is in changed.
	longest int    // The longest chunk that the records were made for.
	// The policy has not seen the table yet; it has just been changed.
	resync, swapped bool
	view            abi.View
}

// grow makes room for so many requests. A table never shrinks, because slots do not move.
func (t *table) grow(slots int) {
	if more := slots - len(t.records); more > 0 {
		t.records = append(t.records, make([]abi.Record, more)...)
		t.owner = append(t.owner, make([]*sequence, more)...)
		t.marked = append(t.marked, make([]bool, more)...)
	}
}

// touch says that a sequence's record may have to be rewritten.
func (s *Scheduler) touch(q *sequence) {
	if !q.touched {
		q.touched = true
		s.table.touched = append(s.table.touched, q)
	}
}

// refreshHints asks the prefix cache about some of the queue, in turn.
func (s *Scheduler) refreshHints() {
	for range min(hintsPerStep, len(s.queue)) {
		s.hinted %= len(s.queue)
		q := s.queue[s.hinted]
		s.hinted++
		if hint := s.peek(q); hint != q.hint {
			q.hint = hint
			s.touch(q)
		}
	}
}

// view brings the table up to date and returns what the policy sees in this step.
func (s *Scheduler) view(costs StepCosts) *abi.View {
	t := &s.table
	t.changed = t.changed[:0]
	s.refreshLeases()
	s.refreshNeeds()
	for _, q := range t.touched {
		q.touched = false
		s.rewrite(q)
	}
	clear(t.touched)
	t.touched = t.touched[:0]
	for _, slot := range t.changed {
		t.marked[slot] = false
	}
	if t.resync {
		t.changed = t.changed[:0]
		for slot := range t.high {
			if t.owner[slot] != nil {
				t.changed = append(t.changed, uint32(slot))
			}
		}
	} else {
		slices.Sort(t.changed)
	}
	t.view = abi.View{
		Header: s.header(costs), Records: t.records[:t.high], Changed: t.changed,
		Tenants: s.tenants, Peers: costs.Peers, Events: s.events.list,
	}
	t.resync, t.swapped = false, false
	return &t.view
}

// rewrite brings one sequence's slot up to date, giving or taking it where needed.
func (s *Scheduler) rewrite(q *sequence) {
	t := &s.table
	switch {
	case q.state == Finished && q.slot < 0:
		return
	case q.state == Finished:
		slot := uint32(q.slot)
		t.records[slot], t.owner[slot] = abi.Record{}, nil
		t.free = append(t.free, slot)
		q.slot = -1
		t.mark(slot)
		return
	case q.slot < 0:
		q.slot = t.slot()
		t.owner[q.slot] = q
	}
	if r := s.record(q); r != t.records[q.slot] {
		t.records[q.slot] = r
		t.mark(uint32(q.slot))
	}
}

func (t *table) mark(slot uint32) {
	if !t.marked[slot] {
		t.marked[slot] = true
		t.changed = append(t.changed, slot)
	}
}

// slot returns one that no request has. There always is one: the table has as many slots as
// requests may wait and hold pages.
func (t *table) slot() int {
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return int(slot)
	}
	t.high++
	return t.high - 1
}

// refreshLeases brings what is left of leases up to date, in coarse steps: otherwise each of them
// would be on the changed list in every step.
func (s *Scheduler) refreshLeases() {
	for _, q := range s.held {
		if q.leaseUntil == 0 && q.leaseLeft == 0 {
			continue
		}
		left := uint32(0)
		if q.leaseUntil > 0 {
			left = leaseStep * uint32(max(1, (q.leaseUntil-s.now)/(leaseStep*time.Millisecond)))
		}
		if left != q.leaseLeft {
			q.leaseLeft = left
			s.touch(q)
		}
	}
}

// refreshNeeds has every record looked at anew when the longest chunk has changed, which with a
// window bounds the pages that a request needs at once.
func (s *Scheduler) refreshNeeds() {
	longest := s.chunkMax(s.limits.ChunkAlign)
	if longest == s.table.longest {
		return
	}
	s.table.longest = longest
	for _, list := range [][]*sequence{s.queue, s.held} {
		for _, q := range list {
			s.touch(q)
		}
	}
}

// leaseStep is how coarsely policies are told what is left of a lease, in milliseconds.
const leaseStep = 100

// SetLease says when the lease of a reservation that nobody writes to ends; 0: it has none, or it
// does not run. An unknown sequence is none.
func (s *Scheduler) SetLease(id SequenceID, until time.Duration) {
	if q := s.byID[id]; q != nil {
		q.leaseUntil = until
	}
}

// Doom says that a sequence is being cancelled by somebody who has to be waited for: policies are
// told, and nothing of it is computed any more. An unknown sequence is none.
func (s *Scheduler) Doom(id SequenceID) {
	if q := s.byID[id]; q != nil {
		q.doomed = true
		s.note(q, moment{what: Doomed})
		s.touch(q)
	}
}

// record is what a policy is told of a sequence.
func (s *Scheduler) record(q *sequence) abi.Record {
	r := abi.Record{
		ID: uint64(q.id), ArrivalNS: int64(q.arrival), DeadlineNS: int64(q.deadline),
		Priority: q.priority, Tenant: q.tenant, State: recordState(q),
		PromptTokens: uint32(q.prompt), CachedTokens: uint32(q.matched),
		RemainingPrefill: uint32(q.remaining()), Generated: uint32(q.generated()),
		MaxNew: uint32(max(q.maxNew, 0)), PagesHeld: uint32(q.pagesHeld()),
		FirstTokenNS: int64(q.firstToken), LastSchedNS: int64(q.lastSched),
		ServiceTokens: q.service, PreemptCount: uint32(q.preempted), PredictedOutput: q.predicted,
		UserTag: q.userTag, Kind: recordKind(q), Class: q.class, Peer: q.peer,
		Group: q.group, PrefixHash: q.prefixHash, LeaseMSLeft: q.leaseLeft,
	}
	switch {
	case !q.holds:
		r.CachedTokens = uint32(q.hint)
		r.PagesNeeded = s.needs(q, s.pagesFor(q.target())-q.hint/s.options.PageSize)
	case q.state == Decoding:
		if q.computed == q.pages()*s.options.PageSize {
			r.PagesNeeded = 1
		}
	case q.state == Prefilling || q.state == Waiting:
		r.PagesNeeded = s.needs(q, max(s.pagesFor(q.target())-q.pages(), 0))
	}
	return r
}

// needs is how many of so many pages to come a sequence needs at once.
func (s *Scheduler) needs(q *sequence, pages int) uint32 {
	main := &s.models[0].options
	return uint32(min(pages, main.Holds(q.target(), s.chunkMax(s.limits.ChunkAlign))))
}

func recordState(q *sequence) uint32 {
	state := uint32(abi.StateLive)
	if q.holds {
		state |= abi.StateRunning
		if !q.preemptable() {
			state |= abi.StatePinned
		}
	} else if q.preempted > 0 {
		state |= abi.StatePreempted
	}
	if q.state == Decoding {
		state |= abi.StateDecoding
	}
	if q.doomed {
		state |= abi.StateCancelPending
	}
	if q.firstToken > 0 {
		state |= abi.StateFirstTokenSent
	}
	return state
}

func recordKind(q *sequence) uint8 {
	switch {
	case q.kind == RemoteSend:
		return abi.KindRemoteSend
	case q.kind == PrepareReceive:
		return abi.KindPrepareReceive
	case q.preempted > 0:
		return abi.KindResumed
	}
	return abi.KindLocal
}
