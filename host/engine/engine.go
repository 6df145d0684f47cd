// Package engine runs the loop of one instance: hear, plan, run, commit, deliver. One goroutine
// owns all state (the scheduler, the sequences, the hand-offs); everybody else talks to it
// through the inbox and reads from streams.
//
// What always holds:
//
//  1. Every request that was admitted ends its stream exactly once, with a reason or an error.
//  2. Whatever a request holds (pages, a lease, a transfer) is released on every way out.
//  3. The loop never waits for a reader, a peer or a policy; it waits only when it has nothing to
//     do.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// Runner computes one batch. The rows of logits belong to the rows that the batch asked for, in
// order, and are valid until the next call; nil is the row of an item whose Chooser has chosen.
type Runner interface {
	Run(b *batch.Batch) ([][]float32, error)
}

// Options are what an engine is made of.
type Options struct {
	// Models are the models that run over the same tokens, the main one first, which alone makes
	// logits. The scheduler has a Memory for each.
	Models []Runner
	// Scheduler is owned by the engine from now on.
	Scheduler *scheduler.Scheduler
	// Context is the most tokens of one request, prompt and output.
	Context int
	// Vocabulary is how many tokens the model knows; others are refused. 0 refuses none.
	Vocabulary int
	// Hidden is the width of the vectors that the models take in place of tokens; 0: none.
	Hidden int
	// EOS are the tokens that end a generation.
	EOS []int32
	// MaxPending bounds the requests on their way into the scheduler: its queue and its sequences.
	MaxPending int
	// RecomputeOnFailure: a reservation whose transfer failed is computed here. Otherwise its
	// start is an error.
	RecomputeOnFailure bool
	// Shares are what tenants and classes get; SetShares changes them.
	Shares Shares
	// Lost reports whether an error of a Runner means that none will ever run again: the engine
	// then ends all requests and refuses others. nil: no error means that.
	Lost func(error) bool
	// Lease is how long a reservation lives that nobody writes to or renews, for policies to be
	// told; 0 tells them nothing.
	Lease time.Duration
	// QueueTimeout is how long a request may wait for its first pages; 0: for ever.
	QueueTimeout time.Duration
	// PolicyName is how people are told who decided, for reports; nil names it as the scheduler
	// does.
	PolicyName func(decider string) string
	// Clock is monotonic, from any start; nil is the system's, from New on.
	Clock func() time.Duration
	// Watch hears what metrics and logs are made of; nil hears nothing.
	Watch Watch
	// Trace hears what happened to whom, on the loop's goroutine; nil hears nothing.
	Trace func(Happening)
	Log   *slog.Logger
}

// Engine is one instance's loop and its hand-offs.
type Engine struct {
	options   Options
	scheduler *scheduler.Scheduler
	receiver  Receiver // nil: this instance does not receive
	sender    Sender   // nil: this instance does not send
	inbox     *inbox
	clock     func() time.Duration
	stopped   chan struct{} // closed when the loop has ended
	admission admission
	progress  progress
	lost      atomic.Pointer[generation.Error] // the answer of an engine whose device is gone

	// Owned by the loop's goroutine.
	requests map[scheduler.SequenceID]*request
	labels   map[string]*request // reservations by the client's ID
	leases   map[string]*request // reservations by lease
	sends    map[string]*request // remote sends by transfer
	fencing  map[string]scheduler.SequenceID
	lastID   scheduler.SequenceID
	costs    costFit
	sampled  []int32
	outcomes []outcome // of the step under way
	leaked   int       // pages without an owner, when they were last counted
	raw      []float32 // a row of logits before it was changed
	tenants  tenants
	classes  map[uint8]Class
	peers    peers
	// past are the last requests that have ended, the next one's place at nextPast.
	past     []remembered
	nextPast int
	vectors  int  // numbers in the vectors of all prompts
	stalled  bool // the last plan was empty though there is work
	draining bool
	looked   time.Duration // when the queue was last searched for late requests
	ended    time.Duration // when a request last ended
	pace     time.Duration // between two ends, on the average
	turn     turn
	decider  string // of the latest step in which somebody was asked, as the scheduler names it
	policy   string // the same, as people are told
}

// New returns an engine that is not running yet.
func New(o Options) *Engine {
	if o.Watch == nil {
		o.Watch = deaf{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.PolicyName == nil {
		o.PolicyName = func(decider string) string { return decider }
	}
	if o.Clock == nil {
		started := time.Now()
		o.Clock = func() time.Duration { return time.Since(started) }
	}
	e := &Engine{
		options: o, scheduler: o.Scheduler, inbox: newInbox(),
		clock: o.Clock, stopped: make(chan struct{}),
		requests: map[scheduler.SequenceID]*request{}, tenants: newTenants(),
		labels: map[string]*request{}, leases: map[string]*request{},
		sends: map[string]*request{}, fencing: map[string]scheduler.SequenceID{},
	}
	e.admission.most.Store(int64(o.MaxPending))
	e.share(o.Shares)
	return e
}

// Now is the engine's monotonic clock.
func (e *Engine) Now() time.Duration { return e.clock() }

// Run is the loop. It ends when ctx does; requests still open end with an error.
func (e *Engine) Run(ctx context.Context) {
	defer e.close()
	for ctx.Err() == nil {
		heard := e.Now()
		if !e.hear(ctx) {
			continue
		}
		t := e.plan(heard)
		e.compute(t)
		e.conclude(t)
	}
}

// turn is one turn of the loop on its way.
type turn struct {
	plan   *scheduler.Plan
	logits [][]float32
	err    error // of the device
	at     stages
}

// plan decides what this turn computes.
func (e *Engine) plan(heard time.Duration) *turn {
	t := &e.turn
	*t = turn{at: stages{hear: heard, plan: e.Now()}}
	t.plan = e.scheduler.Plan(t.at.plan, e.stepCosts())
	if d := &t.plan.Decision; d.Asked && d.By != e.decider {
		e.decider, e.policy = d.By, e.options.PolicyName(d.By)
	}
	e.stalled = t.plan.Empty() && len(t.plan.Grants) == 0
	return t
}

// compute runs the batch.
func (e *Engine) compute(t *turn) {
	t.at.run = e.Now()
	t.logits, t.err = e.run(t.plan)
}

// conclude applies what was computed and hands it out.
func (e *Engine) conclude(t *turn) {
	t.at.commit = e.Now()
	if t.err != nil {
		e.abandon(t.plan, t.err)
		return
	}
	e.countChunks(t.plan, t.at)
	ended := e.commit(t.plan, t.logits)
	t.at.deliver = e.Now()
	e.deliver(t.plan, ended)
	t.at.end = e.Now()
	if !e.stalled {
		e.advanced()
	}
	e.observeStep(t.plan, t.at)
}

// hear runs what others asked for and reports whether there is something to plan. It waits only
// when there is not, or when nothing could be planned since the last time.
func (e *Engine) hear(ctx context.Context) bool {
	const idle, stalled = time.Second, 2 * time.Millisecond
	if e.listen() {
		return true
	}
	e.leaked = e.scheduler.Leaked()
	e.options.Watch.Step(Step{Stats: e.scheduler.Stats(), Leaked: e.leaked})
	most := idle
	if e.stalled {
		most = stalled
		e.stalled = false // Time alone may change a policy's mind.
	}
	e.inbox.wait(ctx.Done(), most)
	return false
}

// listen runs what others asked for and reports whether there is something to plan.
func (e *Engine) listen() bool {
	e.scheduler.Tick(e.Now())
	if e.inbox.run() {
		e.stalled = false
	}
	e.expireWaiting()
	e.note()
	return e.scheduler.Work() && !e.stalled
}

// run computes the plan's batch in every model. After each layer what belongs to a remote send goes
// out. A step that one model failed has failed in all.
func (e *Engine) run(plan *scheduler.Plan) (logits [][]float32, err error) {
	if plan.Empty() {
		return nil, nil
	}
	e.offer(plan)
	for i, model := range e.options.Models {
		b := plan.Input(i)
		b.LayerDone = nil
		if len(plan.Sends) > 0 {
			b.LayerDone = func(layer int) { e.sendLayer(plan, i, layer) }
		}
		rows, err := model.Run(b)
		switch {
		case err != nil && i > 0:
			return nil, fmt.Errorf("draft %d: %w", i, err)
		case err != nil:
			return nil, err
		case i == 0:
			logits = rows // They are the model's own until it runs again.
		}
	}
	return logits, nil
}

// commit samples, and applies the plan to the scheduler. It returns what became of each sampled
// sequence, until the next step.
func (e *Engine) commit(plan *scheduler.Plan, logits [][]float32) []outcome {
	now := e.Now()
	clear(e.outcomes) // Requests that have ended are not kept.
	e.sampled, e.outcomes = e.sampled[:0], e.outcomes[:0]
	for i, id := range plan.Samples {
		out := e.sampleNoted(plan.Step, e.requests[id], logits[i])
		e.sampled = append(e.sampled, out.token)
		e.outcomes = append(e.outcomes, out)
	}
	e.scheduler.Commit(plan, e.sampled, now)
	for i := range e.outcomes {
		if out := &e.outcomes[i]; out.ended() {
			must(e.scheduler.Finish(out.request.id, out.reason()))
		}
	}
	return e.outcomes
}

// countChunks notes in the reports which prompts this step worked on. A request has left the queue
// when the first step that computes for it began to.
func (e *Engine) countChunks(plan *scheduler.Plan, at stages) {
	for _, chunk := range plan.Chunks {
		r := e.requests[chunk.ID]
		if chunk.Decode {
			continue
		}
		if r.report.Chunks == 0 && r.kind != scheduler.PrepareReceive {
			r.report.Queue = at.run - r.accepted
		}
		r.report.Chunks++
		if r.story.begun == 0 {
			r.story.begun = at.run
		}
		if r.story.started > 0 && r.report.Wait == 0 {
			r.report.Wait = at.run - r.story.started
		}
		e.tellChunk(r, chunk, at)
	}
}

// deliver hands out what the step made: tokens, ends, reservations, sealed transfers.
func (e *Engine) deliver(plan *scheduler.Plan, outcomes []outcome) {
	now := e.Now()
	for _, out := range outcomes {
		e.deliverToken(out, now)
	}
	e.endGivenUp(plan)
	for i := range plan.Grants {
		e.grant(&plan.Grants[i])
	}
	for i := range plan.Sends {
		e.sealSend(&plan.Sends[i])
	}
}

// endGivenUp ends the requests whose sequences the plan ended.
func (e *Engine) endGivenUp(plan *scheduler.Plan) {
	for _, shed := range plan.Shed {
		e.fail(e.requests[shed.ID], e.shed(shed.Reason))
	}
	for _, id := range plan.Failed {
		e.fail(e.requests[id], generation.Errorf(generation.CodeInternal,
			"the sequence could not get the pages it needs"))
	}
}

// shed is what the client is told whose request the policy refused.
func (e *Engine) shed(reason uint16) *generation.Error {
	return generation.Errorf(generation.CodeShed, "the scheduling policy %s refused the request "+
		"(reason %d): try again later", e.policy, reason)
}

// abandon takes a failed run back and fails the requests that were part of it: the device said no
// to this batch, and nothing of it counts.
func (e *Engine) abandon(plan *scheduler.Plan, cause error) {
	e.options.Log.Error("step failed", "step", plan.Step, "error", cause)
	failed := make([]*request, 0, len(plan.Chunks))
	for _, chunk := range plan.Chunks {
		failed = append(failed, e.requests[chunk.ID])
	}
	e.scheduler.Abandon(plan)
	e.endGivenUp(plan)
	if e.options.Lost != nil && e.options.Lost(cause) {
		e.lose(cause)
		return
	}
	for _, r := range failed {
		e.drop(r, generation.Errorf(generation.CodeInternal, "run step: %v", cause))
	}
}

// close ends what is still open. The loop has ended.
func (e *Engine) close() {
	e.inbox.run()
	e.inbox.close()
	e.inbox.run()
	for _, r := range e.requests {
		e.drop(r, generation.Errorf(generation.CodeDraining, "the engine is shutting down"))
	}
	close(e.stopped)
}

// must panics on an error that only a bug of ours can cause.
func must(err error) {
	if err != nil {
		panic("engine: " + err.Error())
	}
}
