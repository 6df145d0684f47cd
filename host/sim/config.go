package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/scheduler"
)

// Config is one world: everything that happens in it follows from these values.
type Config struct {
	Seed  uint64
	Shape shape
	// Drafts are the shapes of the models beside the main one, with pages of the same size.
	Drafts []shape
	// Context is the most tokens of one request.
	Context   int
	Instances []InstanceConfig
	Requests  []Ask
	Faults    []Fault
	// Timeout and Lease are the transfer's, Latency is that of a message, Rate the bytes a
	// millisecond of a link, Frame the bytes of KV in a data frame.
	Timeout, Lease, Latency time.Duration
	// QueueTimeout is how long a request may wait for its first pages.
	QueueTimeout time.Duration
	Rate, Frame  int
	// Recompute: a lost transfer is computed by the decode instance.
	Recompute bool
	// Retries is how many other decode instances the front tries.
	Retries int
	// Bug is planted, to see that it is caught.
	Bug Bug
	// Trace hears each thing that happens, for people; nil hears nothing.
	Trace func(at time.Duration, what string)
}

// InstanceConfig is one instance.
type InstanceConfig struct {
	Prefill, Decode bool // roles; both is "all"
	Pages           int
	PrefixPages     int
	// Drafts are the pages of the models beside the main one.
	Drafts      []scheduler.Memory
	Limits      scheduler.Limits
	MaxInflight int
	MaxLeases   int // 0: as many as the protocol allows
	Policy      PolicyKind
	StepTime    time.Duration // of a step, and of each of its tokens a tenth
}

// Ask is one client and how its request is served.
type Ask struct {
	At      time.Duration
	Request generation.Request
	Way     Way
	// End is the window's, as prep_recv takes it. Begin is where generation starts, as an offset
	// back from the window's end.
	End, Back int
	// Branch: a second answer is wanted.
	Branch bool
	// Threshold: fewer tokens than that are not worth a remote send.
	Threshold int
	// Meddling is what somebody else does under the request's name, MeddleAfter how long after At.
	Meddling    Meddling
	MeddleAfter time.Duration
	// Cancel is how long after At the client leaves; 0: never.
	Cancel time.Duration
	// Form: the output must have the form of form.go. StopAfter so many tokens the reader has
	// enough; 0: never.
	Form      bool
	StopAfter int
	// ReadEvery is how often a slow reader looks; 0: as fast as tokens come.
	ReadEvery time.Duration
}

// Way is what the front does with a request.
type Way uint8

// The ways.
const (
	// Direct: one decode instance does all.
	Direct Way = iota
	// Handoff: reserve, send, start.
	Handoff
	// Resend: as Handoff, but a lost send is tried again on another prefill instance.
	Resend
	// Migrate: reserve and send, and never start.
	Migrate
	// Commit: reserve, send, and keep what came in the prefix cache.
	Commit
	// Forget: reserve and do nothing more, so that the lease runs out.
	Forget
	// Stale: as Handoff, and then the used metadata is sent to once more.
	Stale
	// Loopback: as Handoff, with one instance at both ends where there is one.
	Loopback
	// Hurry: start before the send is over.
	Hurry
	ways
)

func (w Way) String() string {
	return [...]string{"direct", "handoff", "resend", "migrate", "commit", "forget", "stale",
		"loopback", "hurry"}[w]
}

// Meddling is what somebody who should not does under the name of a request that is under way.
type Meddling uint8

// The kinds of meddling.
const (
	NoMeddling Meddling = iota
	// ReleaseAgain drops the reservation.
	ReleaseAgain
	// PrepareAgain asks for a second one.
	PrepareAgain
	// SendAgain sends to it from another instance.
	SendAgain
	// StartAgain starts it.
	StartAgain
	meddlings
)

func (m Meddling) String() string {
	return [...]string{"nothing", "release", "prepare", "send", "start"}[m]
}

// Fault is something that goes wrong.
type Fault struct {
	At   time.Duration
	Kind FaultKind
	// Instance is whom it strikes, Peer the other end of a link.
	Instance, Peer int
	For            time.Duration
}

func (f Fault) String() string {
	return fmt.Sprintf("%v %v instance %d peer %d for %v", f.At, f.Kind, f.Instance, f.Peer, f.For)
}

// FaultKind is what goes wrong.
type FaultKind uint8

// The faults.
const (
	// Kill ends an instance; it returns, empty, after a while.
	Kill FaultKind = iota
	// Pause stops an instance as SIGSTOP does.
	Pause
	// Stall lets nothing pass between two instances for a while.
	Stall
	// Drop loses the connections between two instances without a word.
	Drop
	// Cut resets them.
	Cut
	// Corrupt changes a byte of what they carry.
	Corrupt
	// Slow makes a link a hundred times slower for a while.
	Slow
	// Isolate lets nothing pass between the front and an instance for a while.
	Isolate
	// Device fails the next step, as out of memory.
	Device
	// Reset forgets an instance's prefix cache.
	Reset
	// Swap gives an instance another policy.
	Swap
	// Limits changes an instance's limits.
	Limits
	// Drain lets an instance finish what it has and take nothing new for a while.
	Drain
	// Leave takes an instance out of the front's list for a while.
	Leave
	faultKinds
)

func (k FaultKind) String() string {
	return [...]string{"kill", "pause", "stall", "drop", "cut", "corrupt", "slow", "isolate",
		"device", "reset", "swap", "limits", "drain",
		"leave"}[k]
}

// Random is the world of a seed.
func Random(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	c := Config{
		Seed: seed, Context: 30 + r.IntN(60), Timeout: 4 * time.Second,
		Lease:        time.Duration(5+r.IntN(20)) * time.Second,
		QueueTimeout: time.Duration(5+r.IntN(20)) * time.Second,
		Latency:      time.Duration(1+r.IntN(5)) * time.Millisecond,
		Rate:         20 + r.IntN(2000), Frame: 16 * (1 + r.IntN(20)),
		Recompute: r.IntN(3) > 0, Retries: r.IntN(3),
		Shape: shape{PageSize: 1 + r.IntN(8), Layers: 1 + r.IntN(3)},
	}
	c.Shape.window(r)
	if r.IntN(6) == 0 {
		for range 1 + r.IntN(2) {
			draft := shape{PageSize: c.Shape.PageSize, Layers: 1 + r.IntN(2)}
			draft.window(r)
			c.Drafts = append(c.Drafts, draft)
		}
	}
	switch r.IntN(8) {
	case 0:
		c.tight(r)
	case 1:
		c.crowded(r)
	default:
		c.instances(r)
		c.requests(r, 120*time.Millisecond)
	}
	if r.IntN(5) > 0 { // One world in five has nothing go wrong.
		c.faults(r)
	}
	return c
}

// window gives one model in three a window.
func (s *shape) window(r *rand.Rand) {
	if r.IntN(3) == 0 {
		s.Window = 2 + r.IntN(20)
		s.Sinks = r.IntN(6) * r.IntN(2)
	}
}

// tight is a world in which prefill instances have hardly the memory for one request, and many
// come at once.
func (c *Config) tight(r *rand.Rand) {
	for i := range 2 + r.IntN(2) {
		in := c.instance(r)
		in.Prefill, in.Decode = i > 0, i == 0
		in.Pages = 8 * c.least(c.Shape, in.Limits)
		in.Limits.MaxSeqs = 4 + r.IntN(8)
		if in.Prefill {
			in.Pages = c.least(c.Shape, in.Limits) + 1 + r.IntN(2)
			in.Limits.TokenBudget = in.Limits.ChunkAlign + r.IntN(12)
			in.Limits.ChunkMax = in.Limits.TokenBudget
		}
		c.Instances = append(c.Instances, in)
	}
	c.requests(r, 5*time.Millisecond)
}

func (c *Config) instances(r *rand.Rand) {
	count := 1 + r.IntN(4)
	if r.IntN(40) == 0 {
		count = 5 + r.IntN(5)
	}
	for i := range count {
		in := c.instance(r)
		role := r.IntN(3)
		in.Prefill, in.Decode = role != 1, role != 0 || i == count-1
		in.Pages = c.least(c.Shape, in.Limits) + 2 + r.IntN(1+2*c.Context/c.Shape.PageSize)
		c.Instances = append(c.Instances, in)
	}
}

// crowded is a world in which short prompts get long answers, all at once, on instances with memory
// for few of them.
func (c *Config) crowded(r *rand.Rand) {
	for range 1 + r.IntN(2) {
		in := c.instance(r)
		in.Prefill, in.Decode = true, true
		in.Pages = c.least(c.Shape, in.Limits) + 1 + r.IntN(5)
		in.Limits.MaxSeqs = 3 + r.IntN(8)
		c.Instances = append(c.Instances, in)
	}
	c.requests(r, 10*time.Millisecond)
	for n := range c.Requests {
		ask := &c.Requests[n].Request
		if len(ask.Embeds) == 0 {
			ask.Prompt = ask.Prompt[:min(len(ask.Prompt), 1+r.IntN(12))]
		}
		ask.MaxTokens, ask.MinTokens = 10+r.IntN(c.Context/2), 0
		c.Requests[n].End = -1
	}
}

// instance is one without a role and without pages.
func (c *Config) instance(r *rand.Rand) InstanceConfig {
	in := InstanceConfig{
		PrefixPages: -1, MaxInflight: 1 + r.IntN(4), Policy: PolicyKind(r.IntN(int(policies))),
		StepTime: time.Duration(1+r.IntN(20)) * time.Millisecond,
		Limits:   randomLimits(r),
	}
	switch r.IntN(5) {
	case 0:
		in.PrefixPages = 0
	case 1:
		in.PrefixPages = 1 + r.IntN(10)
	}
	if r.IntN(6) == 0 {
		in.MaxLeases = 1 + r.IntN(3)
	}
	for _, draft := range c.Drafts {
		in.Drafts = append(in.Drafts, scheduler.Memory{
			Pages:       c.least(draft, in.Limits) + 2 + r.IntN(1+2*c.Context/draft.PageSize),
			PrefixPages: []int{-1, -1, 0, 1 + r.IntN(10)}[r.IntN(4)],
			Window:      draft.Window, Sinks: draft.Sinks,
		})
	}
	return in
}

// least is the fewest pages that any request can get along with in a model.
func (c *Config) least(s shape, l scheduler.Limits) int {
	return scheduler.Options{PageSize: s.PageSize, Window: s.Window, Sinks: s.Sinks,
		Limits: l}.Least(c.Context)
}

func randomLimits(r *rand.Rand) scheduler.Limits {
	align := 1 + r.IntN(4)*r.IntN(2)
	budget := align + r.IntN(40)
	return scheduler.Limits{
		MaxSeqs: 1 + r.IntN(8), TokenBudget: budget, ChunkMax: align + r.IntN(budget-align+1),
		ChunkAlign: align, MaxPreempt: 2, ReservePages: r.IntN(3), MaxQueue: 4 + r.IntN(20),
		HardAge: 2 * time.Second, MaxIdleSteps: 10, MaxEmptySteps: 5,
	}
}

// requests come at most so far apart.
func (c *Config) requests(r *rand.Rand, apart time.Duration) {
	var texts [][]int32
	at := time.Duration(0)
	for n := range 2 + r.IntN(14) + 4*max(0, len(c.Instances)-4) {
		most := c.Context - 4
		if r.IntN(60) == 0 {
			most += 5
		}
		prompt := randomPrompt(r, texts, most)
		texts = append(texts, prompt)
		prompt, embeds := withItems(prompt)
		at += time.Duration(r.Int64N(int64(apart)))
		a := Ask{
			At: at, Way: Way(r.IntN(int(ways))), End: -1,
			Request: generation.Request{
				ID: fmt.Sprintf("c%d", n), Prompt: prompt, Embeds: embeds,
				MaxTokens: 1 + r.IntN(10), Hints: randomHints(r),
				IgnoreEOS: r.IntN(3) > 0, PinPrompt: r.IntN(40) == 0, Logprobs: r.IntN(4) == 0,
				Sampling: randomSampling(r),
			},
		}
		switch r.IntN(6) {
		case 0, 1:
			a.Way = Handoff
		case 2:
			a.Way = Resend
		}
		switch r.IntN(4) {
		case 0:
			a.End = int(float64(len(prompt)) * r.Float64())
		case 1:
			a.Back = r.IntN(4)
		}
		if r.IntN(8) == 0 {
			a.Threshold = r.IntN(20)
		}
		if r.IntN(8) == 0 {
			a.StopAfter = 1 + r.IntN(6)
		}
		if r.IntN(4) == 0 {
			a.Request.MinTokens = r.IntN(a.Request.MaxTokens + 1)
		}
		a.Form = r.IntN(5) == 0
		a.Branch = r.IntN(8) == 0
		if r.IntN(8) == 0 {
			a.Meddling = 1 + Meddling(r.IntN(int(meddlings)-1))
			a.MeddleAfter = time.Duration(1+r.IntN(200)) * time.Millisecond
		}
		if r.IntN(5) == 0 {
			a.Cancel = time.Duration(1+r.IntN(800)) * time.Millisecond
		}
		if r.IntN(5) == 0 {
			a.ReadEvery = time.Duration(1+r.IntN(2000)) * time.Millisecond
		}
		if r.IntN(10) == 0 {
			at += c.Lease + time.Second
		}
		c.Requests = append(c.Requests, a)
	}
}

// randomPrompt is a new text, or one that repeats or extends another's start.
func randomPrompt(r *rand.Rand, texts [][]int32, most int) []int32 {
	var prompt []int32
	if len(texts) > 0 && r.IntN(3) > 0 {
		old := texts[r.IntN(len(texts))]
		prompt = slices.Clone(old[:1+r.IntN(len(old))])
	}
	for range r.IntN(most) {
		prompt = append(prompt, int32(r.IntN(4)))
	}
	prompt = append(prompt, int32(r.IntN(4)))
	return prompt[:min(len(prompt), most)]
}

// withItems puts vectors in the place of some tokens. Prompts that begin alike have the same ones,
// so that they are found again.
func withItems(prompt []int32) ([]int32, []generation.Embedding) {
	sum := uint64(0)
	for _, token := range prompt[:min(3, len(prompt))] {
		sum = mix(sum, codeOf(token))
	}
	r := rand.New(rand.NewPCG(sum, 2))
	if r.IntN(6) > 0 {
		return prompt, nil
	}
	prompt = slices.Clone(prompt)
	var embeds []generation.Embedding
	for at := r.IntN(10); at < len(prompt); at += 1 + r.IntN(20) {
		kind := r.IntN(3)
		e := generation.Embedding{Start: at, Rows: min(2+3*kind, len(prompt)-at)}
		for n := range e.Rows * hidden {
			e.Values = append(e.Values, float32(kind*100+n))
		}
		e.Digest[0], e.Digest[1] = byte(kind), byte(e.Rows)
		embeds = append(embeds, e)
		for ; at < e.End(); at++ {
			prompt[at] = generation.Placeholder
		}
	}
	return prompt, embeds
}

func randomHints(r *rand.Rand) generation.Hints {
	return generation.Hints{
		Priority: int32(r.IntN(5)) - 2, Tenant: string(rune('a' + r.IntN(3))),
		Class: uint8(r.IntN(3)), PredictedOutput: r.Uint32N(12),
		Deadline: time.Duration(r.IntN(3)) * time.Second,
	}
}

func randomSampling(r *rand.Rand) sample.Params {
	p := sample.Params{Seed: r.Uint64()}
	if r.IntN(2) == 0 {
		p.Temperature = 0.5 + r.Float64()
		p.TopK = r.IntN(10)
	}
	if r.IntN(4) == 0 {
		p.RepetitionPenalty = 1 + r.Float64()
		p.FrequencyPenalty = r.Float64()
		p.PresencePenalty = -r.Float64()
	}
	return p
}

// moment is a time at which something is under way.
func (c *Config) moment(r *rand.Rand) time.Duration {
	about := c.Requests[r.IntN(len(c.Requests))].At
	return about + time.Duration(r.IntN(300))*time.Millisecond
}

func (c *Config) faults(r *rand.Rand) {
	for range 1 + r.IntN(6) {
		f := Fault{
			At: c.moment(r), Kind: FaultKind(r.IntN(int(faultKinds))),
			Instance: r.IntN(len(c.Instances)), Peer: r.IntN(len(c.Instances)),
			For: time.Duration(1+r.IntN(300)) * time.Millisecond,
		}
		if r.IntN(3) == 0 {
			f.For *= 40
		}
		c.Faults = append(c.Faults, f)
	}
	slices.SortStableFunc(c.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}
