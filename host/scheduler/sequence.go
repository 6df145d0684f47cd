package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/prefix"
)

// legal holds the moves of a sequence:
//
//	waiting ──► prefilling ──► decoding ──► finished
//	   │ ▲ ▲        │             │
//	   │ │ └────────┴──preempt────┘
//	   │ └─ start ─────────────┐
//	   ▼                       │
//	prepared ──► receiving ────┘
//
// Every state may end in finished, and a reservation whose run failed goes back to waiting. A
// remote send ends prefilling → finished.
var legal = [States][States]bool{
	Waiting:    {Prefilling: true, Prepared: true, Finished: true},
	Prefilling: {Decoding: true, Waiting: true, Finished: true},
	Prepared:   {Receiving: true, Waiting: true, Finished: true},
	Receiving:  {Waiting: true, Finished: true},
	Decoding:   {Waiting: true, Finished: true},
}

// sequence is a request's state in this engine.
type sequence struct {
	id    SequenceID
	kind  Kind // Becomes Local when a received sequence goes on by itself.
	state State
	// tokens are the prompt and what was generated; of a remote send the prompt up to its end.
	tokens []int32
	prompt int // Prompt tokens among tokens.
	embeds []batch.Embedding
	maxNew int
	// begin and end are the KV window; Local has none.
	begin, end int

	// tables has the pages of each model, the main one first, for as many positions in each.
	// computed is how many positions have their KV in them. matched of them came from the prefix
	// cache when the pages were taken.
	tables   []pageTable
	computed int
	matched  int
	hint     int // What the prefix cache held when it was last asked; waiting sequences only.
	cached   int // matched at the first admission.

	arrival, deadline time.Duration
	priority          int32
	tenant            uint32
	class             uint8
	peer              uint16
	predicted         uint32
	userTag           uint64
	group             uint32
	prefixHash        uint64
	tokenGap          time.Duration
	leaseUntil        time.Duration // Its lease ends then; 0 is no lease that runs.
	leaseLeft         uint32        // As policies were last told, milliseconds.

	pin       bool // The prompt shall be pinned once it is computed.
	holds     bool // It is in Scheduler.held.
	delivered bool // A received sequence: the writer has gone.
	announced bool // A remote send: its first chunk ran, so cached positions have been sent.
	sending   bool // A remote send: somebody may be reading its pages.
	discard   bool // Its pages shall not stay in the prefix cache.
	doomed    bool // It is being cancelled: nothing of it is computed any more.
	guarded   bool // The starvation guard once put it first: no policy preempts it.

	preempted  int
	preemptAt  uint64 // Step of the last preemption.
	plannedAt  uint64 // Step that computes, or last computed, a part of it.
	refusedAt  uint64 // Step in which an entry of it could not run.
	skipAt     uint64 // Step for which the policy said skip.
	forcedAt   uint64 // Step for which the starvation guard put it first.
	orderAt    uint64 // Step for which it has an order among the decodes.
	order      int
	barred     int // Steps in a row that kept a whole item of it out, the last of them barredAt.
	barredAt   uint64
	idle       int // Steps in a row that left it out while it held pages.
	service    uint64
	reason     uint16 // What the policy gave with its last decision about it, and who that was, in
	reasoner   uint16 // Scheduler.deciders.
	lastSched  time.Duration
	firstToken time.Duration
	lastToken  time.Duration

	story   *story
	notedAt uint64 // Step in which its story was told why it did not run.

	slot    int // In the policy's table, or -1.
	touched bool
}

// target is how many positions must be computed before it decodes or is done.
func (q *sequence) target() int {
	if q.kind == Local {
		return len(q.tokens)
	}
	return q.end
}

// remaining is how many positions are to be computed here before it decodes or is done.
func (q *sequence) remaining() int {
	switch {
	case q.doomed:
		return 0
	case q.state == Waiting && !q.holds:
		return q.target() - q.hint
	case q.state == Waiting || q.state == Prefilling:
		return q.target() - q.computed
	}
	return 0
}

func (q *sequence) generated() int { return len(q.tokens) - q.prompt }

// pages is how many pages each of its tables has, those that slid out included.
func (q *sequence) pages() int { return len(q.tables[0].pages) }

// pagesHeld is how many pages of the main model it references.
func (q *sequence) pagesHeld() int { return q.tables[0].held() }

// preemptable reports whether its pages may be taken: nobody outside relies on them.
func (q *sequence) preemptable() bool {
	return q.kind == Local && (q.state == Decoding || q.state == Prefilling || q.state == Waiting)
}

// move is the only function that changes a state. An illegal move is our bug.
func (s *Scheduler) move(q *sequence, to State) {
	from := q.state
	if !legal[from][to] {
		panic(fmt.Sprintf("scheduler: sequence %d cannot move from %v to %v", q.id, from, to))
	}
	q.state = to
	s.states[from]--
	s.states[to]++
	s.moves[from][to]++
	s.touch(q)
}

// find returns the sequence of an ID if it is in one of the states.
func (s *Scheduler) find(id SequenceID, states ...State) (*sequence, error) {
	q := s.byID[id]
	if q == nil {
		return nil, fmt.Errorf("sequence %d: %w", id, ErrUnknown)
	}
	if len(states) > 0 && !slices.Contains(states, q.state) {
		return nil, fmt.Errorf("sequence %d is %v: %w", id, q.state, ErrState)
	}
	return q, nil
}

// enqueue puts a waiting sequence without pages into the queue, in order of arrival.
func (s *Scheduler) enqueue(q *sequence) {
	at, _ := slices.BinarySearchFunc(s.queue, q, byArrival)
	s.queue = slices.Insert(s.queue, at, q)
	s.tenants[q.tenant].Waiting++
	if q.hollow() {
		s.hollow++
	}
	s.touch(q)
}

func (s *Scheduler) dequeue(q *sequence) {
	at, found := slices.BinarySearchFunc(s.queue, q, byArrival)
	if !found {
		panic(fmt.Sprintf("scheduler: sequence %d waits and is not in the queue", q.id))
	}
	s.queue = slices.Delete(s.queue, at, at+1)
	s.tenants[q.tenant].Waiting--
	if q.hollow() {
		s.hollow--
	}
	s.touch(q)
}

// hollow reports whether it reserves nothing: such a one asks no policy.
func (q *sequence) hollow() bool { return q.kind == PrepareReceive && q.end == 0 }

// hold counts the sequence among those that hold pages, last admitted last.
func (s *Scheduler) hold(q *sequence) {
	q.holds = true
	q.idle = 0
	s.held = append(s.held, q)
	s.tenants[q.tenant].Running++
	s.touch(q)
}

// unhold is the opposite of hold; what becomes of the pages is the caller's business.
func (s *Scheduler) unhold(q *sequence) {
	q.holds = false
	at := slices.Index(s.held, q)
	s.held = slices.Delete(s.held, at, at+1)
	s.tenants[q.tenant].Running--
	s.touch(q)
}

// giveBack returns all pages of a sequence and forgets what was computed.
func (s *Scheduler) giveBack(q *sequence, fate prefix.Fate) {
	for i, m := range s.models {
		t := &q.tables[i]
		m.cache.Release(t.path, t.pages, fate, q.matched/s.options.PageSize)
		t.pages, t.path = t.pages[:0], prefix.Path{}
		t.gone, t.slid = 0, 0
	}
	q.computed, q.matched = 0, 0
	s.touch(q)
}

// forget removes a finished sequence that holds nothing any more.
func (s *Scheduler) forget(q *sequence) {
	s.unnameItems(q)
	delete(s.byID, q.id)
	s.stories.keep(q.story)
	s.states[Finished]--
	s.touch(q)
}

func byArrival(a, b *sequence) int {
	switch {
	case a.arrival != b.arrival:
		return compare(a.arrival, b.arrival)
	default:
		return compare(a.id, b.id)
	}
}

func compare[T time.Duration | SequenceID | int | uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
