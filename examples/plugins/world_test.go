package shipped

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/plugins"
)

const (
	pageSize   = 16
	words      = 61
	tokenBytes = 1000 // of KV
)

// machine is an engine as it ships, driven stage by stage in virtual time, so that nothing that a
// test sees depends on the machine it runs on. Its device is made up: it takes the time that it is
// told to, and its tokens are fingerprints of its KV cache, so that a page that was mixed up
// becomes another token.
type machine struct {
	pages     int // of the KV cache
	seqs      int // most that may hold some
	budget    int // tokens of a step
	chunk     int // prompt tokens of one request in a step; 0: the budget
	preempt   int // most preemptions in a step
	fixed     time.Duration
	token     time.Duration // what a step takes for each
	shares    engine.Shares
	role      uint32
	link      *link // to a decode instance; nil: none
	settings  string
	cachePage int              // prefix pages kept; 0: whatever is free, -1: none
	native    scheduler.Policy // decides in place of a module
	wasm      []byte           // the module of a policy that is not shipped
	lasts     time.Duration
}

// ask is a request and when it comes.
type ask struct {
	at     time.Duration
	prompt []int32
	output int
	hints  generation.Hints
	send   bool // its KV goes to the decode instance
}

// client is what came of a request.
type client struct {
	ask
	stream generation.Stream
	tokens []int32
	times  []time.Duration // of each token
	report generation.Report
	done   bool
	ended  time.Duration
}

func (c *client) first() time.Duration { return c.times[0] - c.at }

// gap is the longest time between two of its tokens.
func (c *client) gap() time.Duration {
	longest := time.Duration(0)
	for i := 1; i < len(c.times); i++ {
		longest = max(longest, c.times[i]-c.times[i-1])
	}
	return longest
}

// run is a machine at work.
type run struct {
	machine
	t       *testing.T
	policy  string
	now     time.Duration
	slots   []uint64
	stepper *engine.Stepper
	clients []*client
	next    int // client to come
	steps   int
	// each is called after every step, with its plan.
	each func(*run, *scheduler.Plan)
}

// serve lets a machine serve requests under a shipped policy until all are done, or as long as the
// machine lasts. Every token is checked, and that the policy decided every step.
func (m machine) serve(
	t *testing.T, policy string, asks []ask, each func(*run, *scheduler.Plan),
) *run {
	t.Helper()
	r := &run{machine: m, t: t, policy: policy, each: each}
	if each == nil {
		r.each = func(*run, *scheduler.Plan) {}
	}
	for _, a := range asks {
		r.clients = append(r.clients, &client{ask: a})
	}
	slices.SortStableFunc(r.clients, func(a, b *client) int { return cmp.Compare(a.at, b.at) })
	r.open()
	for r.turn() {
	}
	for i, c := range r.clients {
		if want := oracle(c.prompt, len(c.tokens)); !slices.Equal(c.tokens, want) {
			t.Errorf("%s: request %d: tokens %v, want %v", policy, i, c.tokens, want)
		}
		if m.lasts == 0 && (!c.done || !c.send && len(c.tokens) != c.output) {
			t.Errorf("%s: request %d ended with %d tokens of %d", policy, i, len(c.tokens),
				c.output)
		}
	}
	return r
}

// open starts the engine with the policy as its module.
func (r *run) open() {
	m := r.machine
	cached := m.cachePage
	if cached <= 0 {
		cached = -1 - cached
	}
	s, err := scheduler.New(scheduler.Options{
		Limits: scheduler.Limits{
			MaxSeqs: m.seqs, TokenBudget: m.budget, ChunkMax: m.chunk, MaxPreempt: m.preempt,
			MaxQueue: 1000, MaxEmptySteps: 16, MaxIdleSteps: 10_000,
		},
		Pages: m.pages, PageSize: pageSize, MaxModelLen: 10_000, PrefixPages: cached,
		KVBytesPerToken: tokenBytes, Role: m.role,
	}, r.decider())
	if err != nil {
		r.t.Fatal(err)
	}
	r.slots = make([]uint64, m.pages*pageSize)
	e := engine.New(engine.Options{
		Models: []engine.Runner{r}, Scheduler: s, Context: 10_000, Vocabulary: words,
		MaxPending: 1000, Shares: m.shares, Clock: func() time.Duration { return r.now },
	})
	var sender engine.Sender
	if m.link != nil {
		now := func() time.Duration { return r.now }
		*m.link = link{rate: m.link.rate, heard: e.Heard, clock: now}
		sender = m.link
	}
	r.stepper = engine.NewStepper(e, nil, sender)
}

// decider is the policy's module, or the native policy.
func (r *run) decider() scheduler.Policy {
	m := r.machine
	if m.native != nil {
		return m.native
	}
	host, err := plugins.New(plugins.Options{Slots: 1000 + m.seqs, Decisions: m.seqs + m.preempt})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = host.Close() })
	settings := "{}"
	if r.policy != "fcfs" && m.settings != "" {
		settings = m.settings
	}
	wasm := m.wasm
	if wasm == nil {
		wasm = module(r.t, r.policy)
	}
	spec := plugins.Spec{Name: r.policy, Wasm: wasm, Config: []byte(settings)}
	if _, err := host.Load(r.t.Context(), spec); err != nil {
		r.t.Fatal(err)
	}
	if _, err := host.Activate(r.policy); err != nil {
		r.t.Fatal(err)
	}
	return host
}

// turn is one turn of the loop; false when there is nothing left to do.
func (r *run) turn() bool {
	if r.lasts > 0 && r.now >= r.lasts {
		return false
	}
	for r.next < len(r.clients) && r.clients[r.next].at <= r.now {
		r.begin(r.clients[r.next])
		r.next++
	}
	if r.link != nil {
		r.link.deliver()
	}
	if !r.stepper.Hear() {
		return r.idle()
	}
	plan := r.stepper.Plan()
	if plan.Decision.Fallback {
		r.t.Fatalf("%s did not decide step %d: %v", r.policy, plan.Step, plan.Decision.Err)
	}
	r.stepper.Compute()
	r.stepper.Conclude()
	r.steps++
	r.each(r, plan)
	r.read()
	if r.steps > 200_000 {
		r.t.Fatalf("%s: there is no end", r.policy)
	}
	return true
}

// idle lets time pass until something can happen.
func (r *run) idle() bool {
	r.read()
	then := time.Duration(-1)
	sooner := func(t time.Duration) {
		if t > r.now && (then < 0 || t < then) {
			then = t
		}
	}
	if r.next < len(r.clients) {
		sooner(r.clients[r.next].at)
	}
	if r.link != nil && len(r.link.queue) > 0 {
		sooner(r.link.queue[0].done)
	}
	if r.stepper.Waits() {
		sooner(r.now + 2*time.Millisecond)
		r.stepper.Retry()
	}
	if then < 0 {
		return false
	}
	r.now = then
	return true
}

func (r *run) begin(c *client) {
	request := generation.Request{
		ID: fmt.Sprint(c.at, len(c.prompt)), Prompt: c.prompt, MaxTokens: c.output, Hints: c.hints,
	}
	if c.send {
		window := generation.Send{Begin: 0, End: len(c.prompt) - 1, Metadata: "d0"}
		r.stepper.RemoteSend(request, window, func(_ generation.Sent, err error) {
			if err != nil {
				r.t.Errorf("%s: send: %v", r.policy, err)
			}
			c.done, c.ended = true, r.now
		})
		return
	}
	r.stepper.Generate(request, func(s generation.Stream, err error) {
		if err != nil {
			r.t.Fatalf("%s: %v", r.policy, err)
		}
		c.stream = s
	})
}

// read takes what the streams have.
func (r *run) read() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // Nobody waits.
	for _, c := range r.clients[:r.next] {
		if c.stream == nil || c.done {
			continue
		}
		u, err := c.stream.Next(now)
		if err != nil && err != context.Canceled {
			r.t.Errorf("%s: %v", r.policy, err)
			c.done = true
		}
		for _, token := range u.Tokens {
			c.tokens = append(c.tokens, token)
			c.times = append(c.times, r.now)
		}
		if u.Finish != "" {
			c.done, c.ended, c.report = true, r.now, u.Report
		}
	}
}

// Run implements engine.Runner: it takes its time.
func (r *run) Run(b *batch.Batch) ([][]float32, error) {
	for _, c := range b.Copies {
		from, to := int(c.From)*pageSize, int(c.To)*pageSize
		copy(r.slots[to:to+c.Tokens], r.slots[from:from+c.Tokens])
	}
	var rows [][]float32
	for i := range b.Items {
		item := &b.Items[i]
		value := uint64(0)
		if item.Start > 0 {
			value = r.slots[slot(item.Pages, item.Start-1)]
		}
		for k, token := range item.Tokens {
			value = mix(value, token)
			r.slots[slot(item.Pages, item.Start+k)] = value
		}
		for range item.Logits {
			row := make([]float32, words)
			row[value%words] = 1
			rows = append(rows, row)
		}
	}
	r.now += r.fixed + time.Duration(b.Rows())*r.token
	if b.LayerDone != nil {
		b.LayerDone(0)
	}
	return rows, nil
}

func slot(pages []kvcache.PageID, position int) int {
	return int(pages[position/pageSize])*pageSize + position%pageSize
}

func mix(value uint64, token int32) uint64 {
	x := (value ^ uint64(token+1)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	return x ^ x>>29
}

// oracle is what the device must say, from the prompt alone.
func oracle(prompt []int32, n int) []int32 {
	value := uint64(0)
	for _, token := range prompt {
		value = mix(value, token)
	}
	var tokens []int32
	for range n {
		token := int32(value % words)
		tokens = append(tokens, token)
		value = mix(value, token)
	}
	return tokens
}

// text is a prompt of n tokens; equal seeds give equal beginnings.
func text(seed uint64, n int) []int32 {
	tokens := make([]int32, n)
	value := mix(seed, 7)
	for i := range tokens {
		tokens[i] = int32(value % words)
		value = mix(value, tokens[i])
	}
	return tokens
}
