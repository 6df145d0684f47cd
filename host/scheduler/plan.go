package scheduler

import (
	"slices"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// Plan is what one step computes. It is valid until the next Plan; its slices are reused.
type Plan struct {
	// Step is the number of the step, from 1.
	Step uint64
	// Batch is the input of the model. It may hold copies and no items; it must be run then, too.
	Batch batch.Batch
	// Drafts are the inputs of the models beside the main one: the same tokens over pages of their
	// own, without logits.
	Drafts []batch.Batch
	// Samples names the sequence of each row of logits, in order. Commit takes one token for each.
	Samples []SequenceID
	// Chunks says whose each item of the batch is.
	Chunks []Chunk
	// Sends are the remote sends with a chunk in this step.
	Sends []Send
	// Grants are the reservations made in this step. If the run fails they are void.
	Grants []Grant
	// Preempted lost their pages in this step and wait again.
	Preempted []SequenceID
	// Failed are remote sends that could never get pages, or whose run failed and left some that
	// are gone: they are finished. Their pages, if any were being sent, wait for SendReleased;
	// State says Finished then, and nothing otherwise.
	Failed []SequenceID
	// Shed are requests that the policy refused for good: they are gone.
	Shed []Shed
	// Decision tells how the policy fared.
	Decision Decision
	// Decodes and PrefillTokens count the rows of the batch.
	Decodes, PrefillTokens int
}

// Empty reports whether there is nothing to run.
func (p *Plan) Empty() bool {
	if len(p.Batch.Items) > 0 || len(p.Batch.Copies) > 0 {
		return false
	}
	return !slices.ContainsFunc(p.Drafts, func(b batch.Batch) bool { return len(b.Copies) > 0 })
}

// Input is the batch of a model, the main one being 0.
func (p *Plan) Input(model int) *batch.Batch {
	if model == 0 {
		return &p.Batch
	}
	return &p.Drafts[model-1]
}

// Chunk is the part [Start, End) of a sequence that an item computes.
type Chunk struct {
	ID         SequenceID
	Start, End int
	// Decode is a generated token, otherwise it is prefill.
	Decode bool
}

// Send is the part of a remote send that becomes ready in this step.
type Send struct {
	ID SequenceID
	// Positions [CachedStart, CachedEnd) were in the prefix cache and belong to the window; they
	// are sent page to page. Not empty in the first chunk only.
	CachedStart, CachedEnd int
	// Positions [FreshStart, FreshEnd) are computed by this step and belong to the window; each
	// layer of them may be sent once LayerDone was called for it. Empty before the window.
	FreshStart, FreshEnd int
	// Pages is the sequence's page table. It stays as it is, and pinned, until SendReleased, but
	// for what slides out of the window: that is there until this step is committed, and its
	// receiver has no slot for it later. kvcache.None is a page that has slid out.
	Pages []kvcache.PageID
	// Drafts are the same in the models beside the main one.
	Drafts [][]kvcache.PageID
	// Last is set with the chunk that ends the window.
	Last bool
}

// Table is the page table of a model, the main one being 0.
func (s *Send) Table(model int) []kvcache.PageID {
	if model == 0 {
		return s.Pages
	}
	return s.Drafts[model-1]
}

// Grant is a reservation: pages for positions [Matched, End) of a prepared prompt.
type Grant struct {
	ID SequenceID
	// Matched tokens were found in the prefix cache and need not be sent.
	Matched, End int
	// Segments is [nseg, pos, len, ...]: the k-th slot over the segments belongs to position
	// Matched+k; pos = page*PageSize + offset. Runs that touch are merged, also across pages. A
	// pos of -1 stands for positions that will have slid out of the window: nobody sends them.
	Segments []int
	// Pages is the sequence's page table, for [0, End), with kvcache.None where it has none.
	Pages []kvcache.PageID
	// Drafts are the Segments of the models beside the main one, DraftPages their Pages.
	Drafts     [][]int
	DraftPages [][]kvcache.PageID
}

// Shed is a request that the policy refused, and the reason it gave.
type Shed struct {
	ID     SequenceID
	Reason uint16
}

// Decision counts what became of the policy's answer in one step.
type Decision struct {
	// Asked is false when there was nothing to decide.
	Asked bool
	// Entries is how many decisions the policy gave; Trimmed how many ran with fewer tokens than
	// asked for, Refused how many could not run.
	Entries, Trimmed, Refused int
	// Preempted and Shed are how many lost their pages, and were refused, on the policy's word.
	Preempted, Shed int
	// Skipped is how many running decodes the policy left out.
	Skipped int
	// Forced is how many sequences the starvation guard put first.
	Forced int
	// By is who decided, as an Answerer names it; BuiltinName where that was the built-in policy.
	By string
	// Fallback is set when the built-in policy decided in the policy's stead. Err says why: a
	// *Fault of this package for an answer that broke a rule, otherwise what Decide returned.
	Fallback bool
	Err      error
}

// auto leaves the chunk length to the host.
const auto = -1

// entry is one judged decision: run so many tokens of a sequence, take its pages, or shed it.
type entry struct {
	q      *sequence
	tokens int
	action uint8
	freed  int // Pages that a preemption made available.
}

// turn is the scratch of one step.
type turn struct {
	out   []abi.Decision
	order []entry // What the policy wants to run, in its order; decodes too.
	spare []entry
	list  []*sequence

	budget   int // Tokens left.
	kept     int // Of them, those that decodes leave.
	admitted int
	ended    bool // The budget cut a chunk short: the list ends.
	// closed: nobody else is admitted in this step, because a starving sequence did not fit or a
	// running one had to give way.
	closed bool
	// owed pages were freed by preemptions further down the list: not for what stands before them.
	owed int
	// fill: the policy wants the budget filled that it leaves. quota: an entry could not run
	// because of its tenant's bound alone.
	fill, quota bool
	decider     uint16 // Who decides, in Scheduler.deciders.
	preempted   int    // Ordered by the policy.
	// short: a sequence that holds pages could not go on for want of more.
	short bool
}

// Plan decides the next step and reserves its pages. The policy is asked at most once.
//
// Order: reservations for announced prompts, then a token for each decode, then prompt chunks of
// remote sends and local requests in the policy's order, out of what is left of the budget.
func (s *Scheduler) Plan(now time.Duration, costs StepCosts) *Plan {
	s.step++
	s.now = now
	s.clearPlan()
	s.refreshHints()
	s.decide(costs)
	s.putStarvingFirst()
	s.preemptAndShed()
	s.letIn()
	s.prepareReceive()
	s.decode()
	s.prefill()
	s.breakStall()
	s.noteStep()
	s.countIdle()
	return &s.plan
}

func (s *Scheduler) clearPlan() {
	if slices.ContainsFunc(s.models, func(m *memory) bool { return len(m.tails) > 0 }) {
		panic("scheduler: Plan called before Commit or Abandon of the last plan")
	}
	p := &s.plan
	for i := range s.models {
		b := p.Input(i)
		clear(b.Items)
		*b = batch.Batch{Items: b.Items[:0], Copies: b.Copies[:0]}
	}
	*p = Plan{
		Step:      s.step,
		Batch:     p.Batch,
		Drafts:    p.Drafts,
		Samples:   p.Samples[:0],
		Chunks:    p.Chunks[:0],
		Sends:     p.Sends[:0],
		Grants:    p.Grants[:0],
		Preempted: p.Preempted[:0],
		Failed:    p.Failed[:0],
		Shed:      p.Shed[:0],
	}
	t := &s.turn
	*t = turn{
		out: t.out[:0], order: t.order[:0], spare: t.spare[:0], list: t.list[:0],
		budget: s.limits.TokenBudget,
	}
}

// compute adds the next tokens of a sequence, whose pages are there, to the batch.
func (s *Scheduler) compute(q *sequence, tokens int, decode bool) {
	p := &s.plan
	start, end := q.computed, q.computed+tokens
	logits := 0
	if end == q.target() && q.kind != RemoteSend {
		logits = 1
		p.Samples = append(p.Samples, q.id)
	}
	item := batch.Item{Tokens: q.tokens[start:end], Start: start, Embeds: q.itemsIn(start, end)}
	for i := range s.models {
		b := p.Input(i)
		item.Pages = q.tables[i].pages[:s.pagesFor(end)]
		b.Items = append(b.Items, item)
	}
	p.Batch.Items[len(p.Batch.Items)-1].Logits = logits
	p.Chunks = append(p.Chunks, Chunk{ID: q.id, Start: start, End: end, Decode: decode})
	if q.kind == RemoteSend {
		s.remoteSend(q, start, end)
	}
	if decode {
		p.Decodes++
	} else {
		p.PrefillTokens += tokens
		s.note(q, moment{what: Computed, tokens: uint32(tokens), last: uint32(tokens)})
	}
	q.plannedAt, q.lastSched = s.step, s.now
	s.turn.budget -= tokens
	s.touch(q)
}

// countIdle counts the steps that leave a runnable sequence out.
func (s *Scheduler) countIdle() {
	for _, q := range s.held {
		if q.plannedAt == s.step || q.state == Prepared || q.state == Receiving {
			q.idle = 0
		} else {
			q.idle++
		}
	}
}
