package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Plan is the traffic of a load test.
type Plan struct {
	// Rate is requests a second at Poisson-distributed times; 0 keeps Streams requests under way
	// instead, each followed by the next at once.
	Rate     float64
	Streams  int
	Duration time.Duration // no request begins after it; 0 means Requests alone count
	Requests int           // the most; 0 means that Duration alone counts
	In, Out  int           // tokens of a request
	// Share is the part of each prompt that all have in common, from its front.
	Share float64
	// Cancel is the part of the requests that hang up after a few tokens.
	Cancel float64
	// Trace gives requests in place of the keys above: each at its time, with its lengths.
	Trace []Arrival
	Seed  uint64
}

// Arrival is one request of a trace.
type Arrival struct {
	At      time.Duration
	In, Out int
	// Blocks name the parts of the prompt, of BlockTokens each: equal names are equal tokens.
	Blocks []int64
}

// BlockTokens is the length of a block of a trace, as the Mooncake traces have it.
const BlockTokens = 512

// Ask is one request: prompt tokens, how many to generate, and after how many to hang up (0: not).
type Ask struct {
	Prompt []int32
	Out    int
	HangUp int
}

// Answer is what came of it.
type Answer struct {
	Began   time.Duration
	First   time.Duration   // from the beginning to the first token; 0 when none came
	Gaps    []time.Duration // between pieces of text
	Took    time.Duration
	In, Out int // tokens, as the server counts them; of one hung up, pieces
	HungUp  bool
	Err     error
}

// Server is what a load test talks to.
type Server interface {
	Do(ctx context.Context, a Ask) Answer
}

// Load is the outcome of a load test.
type Load struct {
	Plan      Plan          `json:"-"`
	Elapsed   time.Duration `json:"elapsed_ns"`
	Requests  int           `json:"requests"`
	Succeeded int           `json:"succeeded"`
	Failed    int           `json:"failed"`
	HungUp    int           `json:"hung_up"`
	Late      int           `json:"late"` // of an open loop: begun more than 50 ms after their time
	InTokens  int           `json:"input_tokens"`
	OutTokens int           `json:"output_tokens"`
	Good      int           `json:"good"` // within the targets
	Errors    []string      `json:"errors,omitempty"`
	// By request or gap, in milliseconds.
	TTFT   []float64 `json:"ttft_ms"`
	TPOT   []float64 `json:"tpot_ms"`
	ITL    []float64 `json:"itl_ms"`
	E2E    []float64 `json:"e2e_ms"`
	Second []float64 `json:"tokens_by_second"` // output, since the beginning
	// Steady is the output tokens a second between the last first token and the first last one, of
	// a load that begins all of its requests at once; 0 of any other.
	Steady float64 `json:"steady_tokens_per_second,omitempty"`
	// Whole is the output tokens a second between the first end of a request and the first end
	// after the last one began, so with all streams busy: of a load whose streams have at least
	// LeastCycles requests each; 0 of any other.
	Whole float64 `json:"whole_tokens_per_second,omitempty"`
	// Window is how long the time was that Steady or Whole tells of.
	Window time.Duration `json:"window_ns,omitempty"`
}

// LeastCycles is how many requests each stream has at least for Load.Whole: the first fills the
// streams, the last empties them.
const LeastCycles = 3

// Targets are what a good request keeps; 0 means any.
type Targets struct{ TTFT, TPOT, E2E time.Duration }

// Driver runs a plan.
type Driver struct {
	Server  Server
	Tokens  []int32 // that prompts are made of; at least two
	Targets Targets
	// Done hears how many requests have ended; nil hears nothing.
	Done func(ended int)
	// Overhead is called when the load ends, before anything is computed.
	Ended func()
}

// maxLate is when a request of an open loop counts as late.
const maxLate = 50 * time.Millisecond

// maxErrors bounds the errors that a result keeps.
const maxErrors = 5

// Run drives the plan until all requests have ended or the context does.
func (d *Driver) Run(ctx context.Context, p Plan) (*Load, error) {
	if len(d.Tokens) < 2 {
		return nil, fmt.Errorf("prompts are made of %d tokens; at least two are needed",
			len(d.Tokens))
	}
	if p.Rate == 0 && p.Streams == 0 && p.Trace == nil {
		return nil, fmt.Errorf("neither a rate nor a number of streams")
	}
	if p.Duration == 0 && p.Requests == 0 && p.Trace == nil {
		return nil, fmt.Errorf("neither a duration nor a number of requests")
	}
	r := &drive{Driver: d, plan: p, begun: time.Now(),
		random: rand.New(rand.NewPCG(p.Seed, 0x6c6f6164)), load: &Load{Plan: p}}
	switch {
	case p.Trace != nil:
		r.trace(ctx)
	case p.Rate > 0:
		r.open(ctx)
	default:
		r.closed(ctx)
	}
	r.wait.Wait()
	r.load.Elapsed = time.Since(r.begun)
	if p.atOnce() {
		r.load.Steady, r.load.Window = steady(r.answers)
	} else {
		r.load.Whole, r.load.Window = whole(r.answers)
	}
	if d.Ended != nil {
		d.Ended()
	}
	return r.load, ctx.Err()
}

// drive is a plan under way.
type drive struct {
	*Driver
	plan   Plan
	begun  time.Time
	random *rand.Rand // of the goroutine that begins requests
	wait   sync.WaitGroup
	mu     sync.Mutex
	load   *Load
	begunN int
	common []int32
	// answers are kept where all requests begin at once or each stream has some.
	answers []Answer
}

// atOnce says whether all requests begin at once.
func (p Plan) atOnce() bool { return p.Streams > 0 && p.Requests > 0 && p.Requests <= p.Streams }

// cycles says whether each stream has so many requests that the time between counts.
func (p Plan) cycles() bool { return p.Streams > 0 && p.Requests >= LeastCycles*p.Streams }

// more says whether another request may begin.
func (r *drive) more() bool {
	p := r.plan
	return (p.Requests == 0 || r.begunN < p.Requests) &&
		(p.Duration == 0 || time.Since(r.begun) < p.Duration)
}

// open begins requests at random times, whatever became of those before.
func (r *drive) open(ctx context.Context) {
	at := time.Duration(0)
	for r.more() && r.until(ctx, at) {
		r.begin(ctx, at, r.ask())
		at += time.Duration(r.random.ExpFloat64() / r.plan.Rate * float64(time.Second))
		if r.plan.Duration > 0 && at > r.plan.Duration {
			return
		}
	}
}

// closed keeps so many requests under way.
func (r *drive) closed(ctx context.Context) {
	free := make(chan struct{}, r.plan.Streams)
	for r.more() {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if !r.more() {
			return
		}
		ask := r.ask()
		r.begunN++
		r.wait.Go(func() {
			defer func() { <-free }()
			r.one(ctx, ask)
		})
	}
}

// trace begins requests at their own times.
func (r *drive) trace(ctx context.Context) {
	for _, a := range r.plan.Trace {
		if !r.more() || !r.until(ctx, a.At) {
			return
		}
		r.begin(ctx, a.At, Ask{Prompt: r.blocks(a), Out: a.Out, HangUp: r.hangUp(a.Out)})
	}
}

// until waits for a time of the run.
func (r *drive) until(ctx context.Context, at time.Duration) bool {
	timer := time.NewTimer(at - time.Since(r.begun))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *drive) begin(ctx context.Context, at time.Duration, a Ask) {
	r.begunN++
	if time.Since(r.begun)-at > maxLate {
		r.mu.Lock()
		r.load.Late++
		r.mu.Unlock()
	}
	r.wait.Go(func() { r.one(ctx, a) })
}

// one asks and notes the answer.
func (r *drive) one(ctx context.Context, a Ask) {
	began := time.Since(r.begun)
	answer := r.Server.Do(ctx, a)
	answer.Began = began
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load.add(answer, r.Targets)
	if r.plan.atOnce() || r.plan.cycles() {
		r.answers = append(r.answers, answer)
	}
	if r.Done != nil {
		r.Done(r.load.Requests)
	}
}

// ask makes the next request: the common front, then tokens of its own.
func (r *drive) ask() Ask {
	shared := int(math.Round(r.plan.Share * float64(r.plan.In)))
	for len(r.common) < shared {
		r.common = append(r.common, r.token(r.random))
	}
	prompt := slices.Clone(r.common[:shared])
	for len(prompt) < r.plan.In {
		prompt = append(prompt, r.token(r.random))
	}
	return Ask{Prompt: prompt, Out: r.plan.Out, HangUp: r.hangUp(r.plan.Out)}
}

// hangUp draws after how many tokens a request hangs up; 0 for those that do not.
func (r *drive) hangUp(out int) int {
	if r.random.Float64() >= r.plan.Cancel {
		return 0
	}
	return 1 + r.random.IntN(max(out/2, 1))
}

func (d *Driver) token(random *rand.Rand) int32 { return d.Tokens[random.IntN(len(d.Tokens))] }

// blocks makes a prompt of a trace: each block's tokens follow from its name.
func (r *drive) blocks(a Arrival) []int32 {
	prompt := make([]int32, 0, a.In)
	for _, name := range a.Blocks {
		random := rand.New(rand.NewPCG(uint64(name), r.plan.Seed))
		for range min(BlockTokens, a.In-len(prompt)) {
			prompt = append(prompt, r.token(random))
		}
	}
	for len(prompt) < a.In {
		prompt = append(prompt, r.token(r.random))
	}
	return prompt
}

// add notes one answer.
func (l *Load) add(a Answer, t Targets) {
	l.Requests++
	switch {
	case a.Err != nil:
		if l.Failed++; len(l.Errors) < maxErrors {
			l.Errors = append(l.Errors, a.Err.Error())
		}
		return
	case a.HungUp:
		l.HungUp++
		return
	}
	l.Succeeded++
	l.InTokens += a.In
	l.OutTokens += a.Out
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	l.TTFT, l.E2E = append(l.TTFT, ms(a.First)), append(l.E2E, ms(a.Took))
	for _, g := range a.Gaps {
		l.ITL = append(l.ITL, ms(g))
	}
	each := time.Duration(0)
	if a.Out > 1 {
		each = (a.Took - a.First) / time.Duration(a.Out-1)
		l.TPOT = append(l.TPOT, ms(each))
	}
	within := func(got, most time.Duration) bool { return most == 0 || got <= most }
	if within(a.First, t.TTFT) && within(each, t.TPOT) && within(a.Took, t.E2E) {
		l.Good++
	}
	l.spread(a)
}

// spread adds an answer's tokens to the seconds in which its pieces came.
func (l *Load) spread(a Answer) {
	at := a.Began + a.First
	share := float64(a.Out) / float64(len(a.Gaps)+1)
	count := func() {
		for second := int(at / time.Second); len(l.Second) <= second; {
			l.Second = append(l.Second, 0)
		}
		l.Second[int(at/time.Second)] += share
	}
	count()
	for _, g := range a.Gaps {
		at += g
		count()
	}
}
