package engine

import (
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// Watch hears what happens, for metrics and the log. It is called on the loop's goroutine and must
// not block.
type Watch interface {
	// Step is called after each step that planned something, and before the loop rests, with
	// Number 0 and the state alone.
	Step(Step)
	// Token is called for each token that is handed out: since is the time since the request was
	// accepted for the first one, since the token before for the others.
	Token(first bool, since time.Duration)
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
	// Stats are the scheduler's after the step; Leaked counts pages without an owner, which is done
	// every leakSteps steps and whenever the loop rests: it looks at every page of the pool.
	Stats  scheduler.Stats
	Leaked int
}

// Finished sums up one request. Err is nil when it ended well; Reason is stop, length, cancelled or
// error. FirstToken is 0 where no token came.
type Finished struct {
	ID, Tenant                 string
	Kind                       scheduler.Kind
	PromptTokens, OutputTokens int
	Report                     generation.Report
	FirstToken, Decode, Total  time.Duration
	Reason                     string
	Err                        error
}

type deaf struct{}

func (deaf) Step(Step)                 {}
func (deaf) Token(bool, time.Duration) {}
func (deaf) Finished(Finished)         {}
func (deaf) Transfer(transfer.Event)   {}

// leakSteps is after how many steps pages without an owner are counted again.
const leakSteps = 64

// stages are the times at which the stages of a step began, and its end.
type stages struct{ hear, plan, run, commit, deliver, end time.Duration }

func (e *Engine) observeStep(plan *scheduler.Plan, at stages) {
	tokens := plan.Decodes + plan.PrefillTokens
	if tokens > 0 {
		e.costs.add(tokens, contextOf(plan), at.commit-at.run)
	}
	if e.stalled {
		return
	}
	e.tellStep(plan, at)
	if plan.Step%leakSteps == 0 {
		e.leaked = e.scheduler.Leaked()
	}
	e.options.Watch.Step(Step{
		Number: plan.Step,
		Hear:   at.plan - at.hear, Plan: at.run - at.plan, Run: at.commit - at.run,
		Commit: at.deliver - at.commit, Deliver: at.end - at.deliver,
		Decodes: plan.Decodes, PrefillTokens: plan.PrefillTokens,
		Preempted: len(plan.Preempted), Decision: plan.Decision,
		Stats: e.scheduler.Stats(), Leaked: e.leaked,
	})
}
