package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// instance is one engine with its two ends of the transfer. What it runs is what ships: the
// engine's loop, stage by stage, the scheduler, the ledger of leases and the machines of the
// transfer.
type instance struct {
	world  *World
	index  int
	config InstanceConfig
	random *rand.Rand
	up     bool
	life   int // counts its starts
	// asleep collects what happens to a paused instance until it goes on.
	paused bool
	asleep []func()
	away   bool // out of the front's list
	// cutUntil is how long nothing passes between the front and the instance.
	cutUntil time.Duration

	engine    *engine.Engine
	stepper   *engine.Stepper
	scheduler *scheduler.Scheduler
	models    []*model // the main one first
	ledger    *transfer.Ledger
	policy    *watched
	busy      bool // a turn is under way, or asked for
	ticking   bool // the leases' clock runs

	inbound  map[*conn]bool
	writers  map[uint64]*conn // by epoch
	leases   map[string]*lease
	sending  map[string][]kvcache.PageID // page tables of transfers, by their name
	pending  []*call
	readers  []*reader
	finished map[string]int // requests that ended, by the client's ID

	stalls    int // turns without a plan, in a row
	retrying  bool
	heard     int // calls and events that wait for the next turn, and retries
	checks    int
	mostHeld  int // sequences that a change of limits found holding pages
	evicted   uint64
	grants    uint64 // leases ever granted: the epoch of the last
	preempted map[scheduler.SequenceID]bool
}

// lease is what a checker knows of a reservation that may be written.
type lease struct {
	pages   []held
	slots   map[slot]bool
	writes  map[write]int // since its writer was let in
	epoch   uint64
	order   [][]int // the slots of each model in the order of positions, from begin on
	count   int     // slots in all layers and models
	begin   int
	resumed bool // its writer went on behind what another one had sealed
	writing bool // a writer has been let in and has not ended
}

// slot is a place in a model's pages, held a page of a model, write a slot of a layer.
type (
	slot struct{ model, at int }
	held struct {
		model int
		page  kvcache.PageID
	}
	write struct {
		slot
		layer int
	}
)

func (i *instance) String() string { return fmt.Sprintf("i%d", i.index) }

// start brings an instance up, with empty memory.
func (i *instance) start() {
	w := i.world
	i.life++
	i.up, i.paused, i.busy, i.ticking = true, false, false, false
	i.stalls, i.retrying = 0, false
	i.asleep, i.pending, i.readers = nil, nil, nil
	i.random = rand.New(rand.NewPCG(w.config.Seed, uint64(1000*(i.index+1)+i.life)))
	i.inbound, i.writers = map[*conn]bool{}, map[uint64]*conn{}
	i.leases, i.sending = map[string]*lease{}, map[string][]kvcache.PageID{}
	i.preempted, i.evicted, i.mostHeld = map[scheduler.SequenceID]bool{}, 0, 0
	i.grants = 0
	i.finished = map[string]int{}
	s := w.config.Shape
	i.models = nil
	i.addModel(s, i.config.Pages)
	for k, draft := range w.config.Drafts {
		i.addModel(draft, i.config.Drafts[k].Pages)
	}
	var runners []engine.Runner
	for k := range i.models {
		runners = append(runners, runner{i, k})
	}
	i.policy = &watched{instance: i, policy: newPolicy(i.config.Policy, i.random)}
	var err error
	i.scheduler, err = scheduler.New(scheduler.Options{
		Limits: i.config.Limits, PageSize: s.PageSize, Pages: i.config.Pages,
		MaxModelLen: w.config.Context, PrefixPages: i.config.PrefixPages,
		Window: s.Window, Sinks: s.Sinks, Drafts: i.config.Drafts, Seed: w.config.Seed,
		KVBytesPerToken: slotBytes * s.Layers,
	}, i.policy.orBuiltIn())
	must(err)
	i.engine = engine.New(engine.Options{
		Models: runners, Scheduler: i.scheduler, Context: w.config.Context,
		Vocabulary: vocabulary, Hidden: hidden, Lease: w.config.Lease, EOS: []int32{eos},
		RecomputeOnFailure: w.config.Recompute,
		QueueTimeout:       w.config.QueueTimeout,
		MaxPending:         i.config.Limits.MaxQueue + i.config.Limits.MaxSeqs,
		Clock:              func() time.Duration { return w.clock.now }, Watch: watch{i},
	})
	i.ledger, err = transfer.NewLedger(transfer.ReceiverOptions{
		Models: i.sent(), Address: i.address(), Random: chaff{i.random},
		Timeout: w.config.Timeout, Lease: w.config.Lease, MaxInflight: i.config.MaxInflight,
		MaxLeases: i.config.MaxLeases,
	})
	must(err)
	var receiver engine.Receiver
	var sender engine.Sender
	if i.config.Decode {
		receiver = receiverEnd{i}
	}
	if i.config.Prefill {
		sender = senderEnd{i}
	}
	i.stepper = engine.NewStepper(i.engine, receiver, sender)
}

// address is where senders reach an instance; its port is its number.
func (i *instance) address() string { return fmt.Sprintf("127.0.0.1:%d", 1+i.index) }

// addModel makes a model with its memory.
func (i *instance) addModel(s shape, pages int) {
	k := len(i.models)
	m := newModel(s, pages)
	m.crossed = i.world.config.Bug == WrongLayer
	m.mayWrite = func(page kvcache.PageID, copies int) error { return i.mayWrite(k, page, copies) }
	m.mayReceive = func(layer int, r kvcache.SlotRange) error {
		return i.mayReceive(k, layer, r)
	}
	i.models = append(i.models, m)
}

// sent are the models as the transfer sees them.
func (i *instance) sent() (models []transfer.Model) {
	for k, m := range i.models {
		models = append(models, transfer.Model{
			Compat: transfer.Compat{Model: fmt.Sprint("fingerprint ", k), DType: "hash",
				PageSize: m.PageSize, Layers: m.Layers, Window: m.Window, Sinks: m.Sinks},
			Pages: m, SlotBytes: slotBytes,
		})
	}
	return models
}

// chaff makes bytes of chance for keys and tokens.
type chaff struct{ *rand.Rand }

func (c chaff) Read(p []byte) (int, error) {
	for k := range p {
		p[k] = byte(c.Uint32())
	}
	return len(p), nil
}

// run lets an instance do something now, or when it goes on, unless it has ended since.
func (i *instance) run(life int, do func()) {
	switch {
	case !i.up || life != i.life:
	case i.paused:
		i.asleep = append(i.asleep, do)
	default:
		do()
	}
}

// later is run after a while.
func (i *instance) later(d time.Duration, do func()) {
	life := i.life
	i.world.clock.after(d, func() { i.run(life, do) })
}

// kick asks for a turn, because there is something to hear.
func (i *instance) kick() {
	i.heard++
	i.again()
}

func (i *instance) again() {
	if !i.busy {
		i.busy = true
		i.later(0, i.hear)
	}
}

// hear begins a turn if there is something to do.
func (i *instance) hear() {
	i.policy.swap()
	work := i.stepper.Hear()
	if i.heard > 0 {
		i.heard = 0
		i.check()
		i.checkAccounts()
		i.read()
	}
	if !work {
		i.busy = false
		if i.stepper.Waits() && !i.retrying {
			i.retrying = true
			i.stalls = min(i.stalls+1, 8)
			i.later(time.Millisecond<<i.stalls, func() {
				i.retrying = false
				i.stepper.Retry()
				i.again()
			})
		}
		return
	}
	plan := i.stepper.Plan()
	i.checkPlan(plan)
	took := i.config.StepTime + i.config.StepTime*time.Duration(plan.Batch.Rows())/10
	if plan.Empty() {
		took = 0
	} else {
		i.stalls = 0
	}
	i.later(took/2, func() {
		i.compute(plan)
		i.later(took/2, i.conclude)
	})
}

func (i *instance) compute(plan *scheduler.Plan) {
	for _, s := range plan.Sends {
		if name := fmt.Sprintf("s%d", s.ID); i.carries(name) {
			i.sending[name] = slices.Clone(s.Pages)
		}
	}
	i.world.config.Bug.batch(&plan.Batch, plan, i)
	i.stepper.Compute()
	i.checkDrafts(plan)
}

// carries reports whether a transfer of the instance is under way.
func (i *instance) carries(name string) bool {
	return slices.ContainsFunc(i.world.conns, func(c *conn) bool {
		return c.from == i && c.fromLife == i.life && c.name == name && !c.outGone
	})
}

func (i *instance) conclude() {
	i.stepper.Conclude()
	i.check()
	i.busy = false
	i.read()
	i.again()
}

// limit changes the limits, unless what is here needs the old ones.
func (i *instance) limit() {
	limits := randomLimits(i.random)
	if i.random.IntN(2) == 0 {
		limits.ChunkAlign = min(limits.ChunkMax, 1+i.random.IntN(20))
	}
	if i.scheduler.SetLimits(limits) == nil {
		i.config.Limits, i.mostHeld = limits, i.scheduler.Stats().Holding
		i.world.mark(LimitsChanged)
	}
}

// reset forgets the prefix cache.
func (i *instance) reset() {
	i.stepper.Reset()
	i.kick()
	i.world.mark(CacheReset)
}

// drain lets an instance take nothing new for a while.
func (i *instance) drain(d time.Duration) {
	i.stepper.Drain(true)
	i.kick()
	i.world.mark(Drained)
	i.later(d, func() { i.stepper.Drain(false); i.kick() })
}

// runner is a model as the engine runs it.
type runner struct {
	*instance
	model int
}

// errMemory is what a device says that has no memory left.
var errMemory = errors.New("out of memory")

func (r runner) Run(b *batch.Batch) ([][]float32, error) {
	m := r.models[r.model]
	failing := m.fail != nil
	if failing && r.world.config.Bug == DeviceIgnored {
		m.fail = nil
		rows := make([][]float32, 0, len(b.Items))
		for k := range b.Items {
			for range b.Items[k].Logits {
				rows = append(rows, make([]float32, vocabulary))
			}
		}
		return rows, nil
	}
	if failing {
		r.world.mark(DeviceFailed)
	}
	if len(b.Copies) > 0 {
		r.world.mark(TailCopied)
	}
	if r.model > 0 {
		r.world.mark(DraftRun)
		if r.world.config.Bug == DraftIdle {
			return nil, nil
		}
	}
	return m.Run(b)
}

// watch hears what the engine tells.
type watch struct{ *instance }

func (w watch) Step(engine.Step)          {}
func (w watch) Token(bool, time.Duration) {}
func (w watch) Transfer(transfer.Event)   {}

func (w watch) Finished(f engine.Finished) {
	w.world.trace("%v ended %v %v %q: %s %v", w.instance, f.Kind, f.ID, f.Reason, f.Report.Policy,
		f.Err)
	w.finished[f.ID]++
}

// kill ends an instance: its memory is gone, its connections are reset.
func (i *instance) kill() {
	w := i.world
	if !i.up {
		return
	}
	i.noteDeath()
	i.up = false
	for _, c := range w.conns {
		c.dies(i)
	}
	for _, p := range i.pending {
		p.breaks()
	}
	i.pending = nil
	for _, r := range i.readers {
		w.clock.after(w.config.Latency, r.lost)
	}
	i.readers = nil
}

// noteDeath marks what the instance was doing.
func (i *instance) noteDeath() {
	for _, l := range i.leases {
		if len(l.writes) > 0 {
			i.world.mark(DecodeDied)
		}
	}
	if len(i.sending) > 0 {
		i.world.mark(PrefillDied)
	}
}

func (i *instance) pause() { i.paused = i.up }

func (i *instance) resume() {
	if !i.up || !i.paused {
		return
	}
	i.paused = false
	asleep := i.asleep
	i.asleep = nil
	for n, do := range asleep {
		if i.paused {
			i.asleep = append(i.asleep, asleep[n:]...)
			return
		}
		do()
	}
}

// watched lets a policy be swapped between two turns.
type watched struct {
	instance *instance
	policy   scheduler.Policy
	next     *PolicyKind
	limits   bool // change them
}

func (p *watched) orBuiltIn() scheduler.Policy { return p.policy }

func (p *watched) swap() {
	i := p.instance
	if p.limits {
		p.limits = false
		i.limit()
	}
	if p.next == nil {
		return
	}
	i.config.Policy = *p.next
	p.policy = newPolicy(*p.next, i.random)
	p.next = nil
	i.scheduler.SetPolicy(p.policy)
	if i.scheduler.Work() {
		i.world.mark(PolicySwapped)
	}
}

func must(err error) {
	if err != nil {
		broken("%v", err)
	}
}

// ended reports whether a code is that of a failure that faults explain.
func explained(code generation.Code) bool {
	switch code {
	case generation.CodeInternal, generation.CodeTransferFailed, generation.CodeNotDelivered,
		generation.CodeReservationNotFound, generation.CodeNoDecode, codeLost,
		generation.CodeShed, generation.CodeDraining,
		generation.CodeInvalidMetadata, generation.CodeIDInUse, generation.CodeIncompatible:
		return true
	}
	return false
}

// codeLost is the front's: the instance did not answer.
const codeLost generation.Code = "lost"
