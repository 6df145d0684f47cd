// Package scheduler decides what the next step computes. It owns the sequences, their page tables
// and the order in which they run; it has no clock, no device, no network and no goroutine: events
// and times go in, a plan comes out, the sampled tokens go back in.
//
// One turn of the caller's loop: Submit, Cancel and the transfer's events; Plan; run the batch;
// Commit; Finish for each sequence that has ended. Between Plan and Commit (or Abandon, when the
// device failed) no other method that changes anything may be called.
//
// What always holds:
//
//  1. A sequence is in exactly one state, and one function moves it (sequence.go).
//  2. A page is owned by exactly one of: free list, sequences (counted), prefix tree, quarantine.
//  3. A policy decides when, never which: any answer leads to the same tokens.
//  4. A running decode has its token in every step unless the policy skips it, pages run out, or
//     an item that is computed whole was kept out for too long (embed.go).
//  5. One predicate admits a chunk: need + one page for each running and admitted sequence fits
//     what is free or evictable.
//  6. A page table holds what later positions see and nothing else (window.go).
//  7. What a sequence has computed and matched is the same in every model (memory.go).
package scheduler

import (
	"fmt"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/batch"
)

// Scheduler is the state of all sequences of one engine.
type Scheduler struct {
	options Options
	limits  Limits
	policy  Policy
	builtin FCFS
	models  []*memory // The main model's first.

	byID map[SequenceID]*sequence // For look-ups only, never walked where order shows.
	// queue is waiting without pages, by arrival; held has pages, or a claim to some, in order of
	// admission; leaving is finished and still read by a transfer.
	queue, held, leaving []*sequence
	refs                 []int // where references counts

	states    [States]int
	moves     [States][States]uint64
	preempted uint64
	matched   uint64
	queried   uint64

	step   uint64
	now    time.Duration
	plan   Plan
	copied []*sequence // They wait for the plan's copies.
	turn   turn
	table  table
	judge  abi.Judge
	// tenants is the policy's tenant table, events what happened since it was last asked.
	tenants []abi.Tenant
	events  events
	// stories tell people what happened to each sequence. asked counts the steps in which a policy
	// was asked, spent those that used up their tokens, and deciders are who decided.
	stories      stories
	asked, spent uint64
	deciders     []string
	names        names
	barred       *sequence // It was kept out for too long, and comes first in the next step.
	// hinted is where the next look at what the prefix cache holds for the queue starts.
	hinted   int
	hollow   int  // How many of the queue reserve nothing.
	empty    int  // Answers in a row that left fitting work aside.
	stalled  bool // A standstill was broken, and those who hold pages are not through yet.
	draining bool
}

// New returns an empty scheduler. A nil policy means the built-in one.
func New(o Options, policy Policy) (*Scheduler, error) {
	if o.PageSize < 1 || o.MaxModelLen < 1 {
		return nil, fmt.Errorf("scheduler: pages of %d tokens for a length of %d: need at least 1",
			o.PageSize, o.MaxModelLen)
	}
	s := &Scheduler{options: o, byID: map[SequenceID]*sequence{}, names: newNames()}
	for i, m := range append([]Memory{o.main()}, o.Drafts...) {
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("scheduler: model %d: %w", i, err)
		}
		s.models = append(s.models, newMemory(o, m))
	}
	limits, err := o.Limits.complete()
	if err != nil {
		return nil, err
	}
	s.limits = limits
	s.plan.Drafts = make([]batch.Batch, len(o.Drafts))
	s.table.grow(limits.MaxQueue + limits.MaxSeqs)
	s.events.list = make([]abi.Event, 0, abi.LimitEvents)
	s.SetTenant(0, 0, 0)
	s.deciders = append(make([]string, 0, maxDeciders), "others", BuiltinName)
	s.SetPolicy(policy)
	return s, nil
}

// SetPolicy makes another policy decide from the next step on; it is shown every live slot. Nil
// means the built-in one.
func (s *Scheduler) SetPolicy(policy Policy) {
	if policy == nil {
		policy = &s.builtin
	}
	s.policy = policy
	s.empty = 0
	s.table.resync, s.table.swapped = true, true
}

// SetLimits changes the numbers from the next step on. An error leaves them as they were.
func (s *Scheduler) SetLimits(l Limits) error {
	l, err := l.complete()
	if err != nil {
		return err
	}
	for _, q := range s.byID {
		if rows := longest(q.embeds); rows > l.ChunkMax {
			return fmt.Errorf("scheduler: a chunk of at most %d tokens, but a request is here "+
				"with an item of %d that is computed at once", l.ChunkMax, rows)
		}
	}
	s.limits = l
	s.table.grow(l.MaxQueue + l.MaxSeqs)
	return nil
}

// SetDraining tells policies that no new requests come.
func (s *Scheduler) SetDraining(draining bool) { s.draining = draining }

// TokenBytes is the size of one token's KV over all layers.
func (s *Scheduler) TokenBytes() int { return s.options.KVBytesPerToken }

// Tick says what time it is, for what is told of the events until the next plan. Time never runs
// back.
func (s *Scheduler) Tick(now time.Duration) { s.now = max(s.now, now) }

// Work reports whether Plan could have something to do: a sequence waits, prefills or decodes. An
// empty plan without grants, though there is work, becomes another one only through an event or
// with time.
func (s *Scheduler) Work() bool {
	return s.states[Waiting]+s.states[Prefilling]+s.states[Decoding] > 0
}

// State returns where a sequence stands; ok is false when there is none.
func (s *Scheduler) State(id SequenceID) (state State, ok bool) {
	q := s.byID[id]
	if q == nil {
		return Finished, false
	}
	return q.state, true
}

// Info describes a sequence.
type Info struct {
	State State
	Kind  Kind
	// PromptTokens counts the prompt; for a remote send only up to End.
	PromptTokens int
	// Cached is how many prompt tokens the prefix cache had at its first admission, Computed how
	// many positions have KV now, Generated how many tokens were sampled.
	Cached, Computed, Generated int
	// Pages counts the pages it holds, Preempted how often it lost them.
	Pages, Preempted int
	// LastRun is when a step last computed something of it, FirstToken when its first token was
	// sampled; 0: not yet.
	LastRun, FirstToken time.Duration
	// Reason is the number that the policy gave with its last decision about it; 0: none. Policy
	// says who that was, "" without a reason.
	Reason uint16
	Policy string
}

// Info returns what is known of a sequence; ok is false when there is none.
func (s *Scheduler) Info(id SequenceID) (info Info, ok bool) {
	q := s.byID[id]
	if q == nil {
		return Info{}, false
	}
	info = Info{
		State: q.state, Kind: q.kind, PromptTokens: q.prompt,
		Cached: q.cached, Computed: q.computed, Generated: q.generated(),
		Pages: q.pagesHeld(), Preempted: q.preempted,
		LastRun: q.lastSched, FirstToken: q.firstToken,
		Reason: q.reason,
	}
	if q.reason != 0 {
		info.Policy = s.deciders[q.reasoner]
	}
	return info, true
}

// Reset forgets the prefix cache, pinned prompts included, as far as no sequence references it.
func (s *Scheduler) Reset() {
	for _, m := range s.models {
		m.cache.Reset()
	}
}

// pagesFor is the number of pages that hold so many tokens.
func (s *Scheduler) pagesFor(tokens int) int {
	return (tokens + s.options.PageSize - 1) / s.options.PageSize
}
