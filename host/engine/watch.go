package engine

import (
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// Watch hears what happens, for metrics and the log. It is called on the loop's goroutine, except
// where a method says otherwise, and must not block.
type Watch interface {
	// Step is called after each step that planned something.
	Step(Step)
	// State is called after each step and before the loop rests; leaked pages have no owner.
	State(stats scheduler.Stats, leaked int)
	// FirstToken and NextToken give times to first token and between tokens.
	FirstToken(sinceAccepted time.Duration)
	NextToken(sinceLast time.Duration)
	// Finished is called once a request.
	Finished(Finished)
	// Transfer is called with each event of a transfer.
	Transfer(transfer.Event)
}

// Step is what one turn of the loop did and how long its stages took.
type Step struct {
	Number                            uint64
	Hear, Plan, Run, Commit, Deliver  time.Duration
	Decodes, PrefillTokens, Preempted int
	Decision                          scheduler.Decision
}

// Finished sums up one request. Err is nil when it ended well; Reason is stop, length, cancelled or
// error. FirstToken is 0 where no token came.
type Finished struct {
	ID                         string
	Kind                       scheduler.Kind
	PromptTokens, OutputTokens int
	Report                     generation.Report
	FirstToken, Decode, Total  time.Duration
	Reason                     string
	Err                        error
}

type deaf struct{}

func (deaf) Step(Step)                  {}
func (deaf) State(scheduler.Stats, int) {}
func (deaf) FirstToken(time.Duration)   {}
func (deaf) NextToken(time.Duration)    {}
func (deaf) Finished(Finished)          {}
func (deaf) Transfer(transfer.Event)    {}

// stages are the times at which the stages of a step began, and its end.
type stages struct{ hear, plan, run, commit, deliver, end time.Duration }

func (e *Engine) observeStep(plan *scheduler.Plan, at stages) {
	tokens := plan.Decodes + plan.PrefillTokens
	if tokens > 0 {
		e.costs.add(tokens, at.commit-at.run)
	}
	if e.stalled {
		return
	}
	e.options.Watch.Step(Step{
		Number: plan.Step,
		Hear:   at.plan - at.hear, Plan: at.run - at.plan, Run: at.commit - at.run,
		Commit: at.deliver - at.commit, Deliver: at.end - at.deliver,
		Decodes: plan.Decodes, PrefillTokens: plan.PrefillTokens,
		Preempted: len(plan.Preempted), Decision: plan.Decision,
	})
	e.options.Watch.State(e.scheduler.Stats(), e.scheduler.Leaked())
}
