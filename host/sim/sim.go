// Package sim runs many engines in one goroutine and virtual time, so that whatever happens follows
// from a seed and can be seen again. What runs is what ships: the engine's loop taken stage by
// stage (engine.Stepper), the scheduler, the caches, the ledger of leases, the machines of the
// transfer and placement. What is made up is what they stand on: time, a network that stalls, cuts,
// drops and damages, instances that die and return, clients that leave, policies that trap or lie,
// devices without memory, and a model whose tokens are fingerprints of its KV cache.
//
// What always holds:
//
//  1. A request gets the tokens that one engine alone would give it, or a beginning of them and an
//     error that something which went wrong explains.
//  2. After everything that happens to an instance every checker of check.go is content.
//  3. Every client hears an end, and when all have, nothing is held anywhere.
//  4. Equal configurations run alike.
package sim

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/placement"
)

// World is one run.
type World struct {
	config    Config
	clock     clock
	instances []*instance
	pool      *placement.Pool
	conns     []*conn
	clients   []*client
	items     map[[32]byte][]uint64 // what the rows of each item of vectors are to the model
	open      int                   // clients that have not ended
	links     map[[2]int]*link
	counts    Counts
	events    int
	healing   bool // no more faults
	struck    int  // faults so far, and those of devices among them
	devices   int
}

// link is what is wrong between two instances.
type link struct {
	stalledUntil, slowUntil time.Duration
}

// Outcome is what a run came to.
type Outcome struct {
	Counts Counts
	// Tokens were handed to clients, of whom so many had a whole answer and so many an error.
	Tokens, Answered, Failed int
	Events                   int
	Lasted                   time.Duration
}

// Limits of a run: beyond them it has no end.
const (
	maxEvents = 300_000
	maxTime   = 30 * time.Minute
)

// Run runs a world to its end. The error is the invariant that was broken, with the seed and the
// time.
func Run(c Config) (out Outcome, err error) {
	w := newWorld(c)
	defer func() {
		out = w.outcome()
		switch e := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("seed %d at %v: %w", c.Seed, w.clock.now, e.error)
		default:
			err = fmt.Errorf("seed %d at %v: panic: %v\n%s", c.Seed, w.clock.now, e, debug.Stack())
		}
	}()
	w.begin()
	for w.open > 0 {
		w.step()
	}
	w.end()
	return out, nil
}

func newWorld(c Config) *World {
	return &World{config: c, links: map[[2]int]*link{}, items: map[[32]byte][]uint64{}}
}

// begin puts instances, clients and faults in place.
func (w *World) begin() {
	for n, c := range w.config.Instances {
		i := &instance{world: w, index: n, config: c}
		w.instances = append(w.instances, i)
		i.start()
	}
	var err error
	w.pool, err = placement.New(w.listed())
	must(err)
	for n := range w.config.Requests {
		c := w.newClient(n, &w.config.Requests[n])
		w.clients = append(w.clients, c)
		w.open++
		w.know(c.ask.Request.Embeds)
		w.clock.after(c.ask.At, c.arrive)
	}
	for _, f := range w.config.Faults {
		w.clock.after(f.At, func() { w.strike(f) })
	}
	w.clock.after(healthEvery, w.health)
}

// know notes the items of a prompt.
func (w *World) know(embeds []generation.Embedding) {
	for k := range embeds {
		e := &embeds[k]
		if w.items[e.Digest] != nil {
			continue
		}
		for row := range e.Rows {
			w.items[e.Digest] = append(w.items[e.Digest], codeOfVector(e.Values, row))
		}
	}
}

// listed are the names of the instances that are in the front's list.
func (w *World) listed() (prefill, decode []string) {
	for _, i := range w.instances {
		if i.config.Prefill && !i.away {
			prefill = append(prefill, i.String())
		}
		if i.config.Decode && !i.away {
			decode = append(decode, i.String())
		}
	}
	return prefill, decode
}

// enlist puts an instance into the front's list or takes it out. What runs there runs on.
func (w *World) enlist(i *instance, here bool) {
	i.away = !here
	must(w.pool.Replace(w.listed()))
}

func (w *World) step() {
	w.events++
	if w.events > maxEvents || w.clock.now > maxTime {
		broken("no end after %d events: %d clients wait: %v", w.events, w.open, w.stuck())
	}
	if !w.clock.next() {
		broken("nothing happens any more: %d clients wait: %v", w.open, w.stuck())
	}
}

func (w *World) stuck() []string {
	var all []string
	for _, c := range w.clients {
		if !c.ended {
			all = append(all, fmt.Sprintf("%s in phase %q", c.id(), c.phase))
		}
	}
	return all
}

// settled is how long after the last client everything must be over: what is under way times out,
// leases run out.
func (w *World) settled() time.Duration {
	return 4*w.config.Timeout + 2*w.config.Lease + requestTimeout + 10*time.Second
}

// end lets what is left come to its end, and verifies that nothing stays.
func (w *World) end() {
	w.healing = true
	for _, i := range w.instances {
		i.resume()
		i.cutUntil = 0
	}
	for deadline := w.clock.now + w.settled(); w.clock.now < deadline; {
		w.events++
		if w.events > maxEvents {
			broken("no end after %d events", w.events)
		}
		if !w.clock.next() {
			break
		}
	}
	for _, i := range w.instances {
		i.checkEmpty()
	}
	for _, s := range w.pool.Snapshot() {
		if s.InFlight != 0 {
			broken("%d requests are counted in flight on %s at the end", s.InFlight, s.Name)
		}
	}
}

// strike lets a fault happen.
func (w *World) strike(f Fault) {
	if w.healing {
		return
	}
	i, peer := w.instances[f.Instance], w.instances[f.Peer]
	w.trace("fault: %v", f)
	w.struck++
	switch f.Kind {
	case Kill:
		i.kill()
		w.clock.after(f.For, func() {
			if !i.up {
				i.start()
			}
		})
	case Pause:
		i.pause()
		w.clock.after(f.For, i.resume)
	case Stall:
		w.link(i, peer).stalledUntil = w.clock.now + f.For
	case Slow:
		w.link(i, peer).slowUntil = w.clock.now + f.For
	case Drop, Cut, Corrupt:
		for _, c := range w.conns {
			if c.from == i || c.to == i || c.from == peer || c.to == peer {
				w.spoil(c, f.Kind)
			}
		}
	case Isolate:
		i.cutUntil = max(i.cutUntil, w.clock.now+f.For)
		w.clock.after(f.For, i.read)
	case Device:
		if i.up {
			i.models[f.Peer%len(i.models)].fail = errMemory
			w.devices++
		}
	case Reset:
		i.run(i.life, i.reset)
	case Swap:
		kind := PolicyKind(int(i.config.Policy+1+PolicyKind(f.Peer)) % int(policies))
		i.policy.next = &kind
	case Drain:
		i.run(i.life, func() { i.drain(f.For) })
	case Leave:
		w.mark(Left)
		w.enlist(i, false)
		w.clock.after(f.For, func() { w.enlist(i, true) })
	case Limits:
		i.policy.limits = true
	}
}

func (w *World) spoil(c *conn, kind FaultKind) {
	if c.outGone && c.inGone {
		return
	}
	switch kind {
	case Drop:
		c.dropped = true
	case Cut:
		c.cut()
	default:
		c.corrupt = true
	}
}

func (w *World) link(a, b *instance) *link {
	key := [2]int{min(a.index, b.index), max(a.index, b.index)}
	if w.links[key] == nil {
		w.links[key] = &link{}
	}
	return w.links[key]
}

// blocked reports whether nothing passes between two instances now.
func (w *World) blocked(a, b *instance) bool {
	return w.link(a, b).stalledUntil > w.clock.now && !w.healing
}

// rate is the bytes a millisecond that pass.
func (w *World) rate(a, b *instance) int {
	if w.link(a, b).slowUntil > w.clock.now && !w.healing {
		return max(1, w.config.Rate/100)
	}
	return w.config.Rate
}

// healthEvery is how often the front asks instances how they are.
const healthEvery = time.Second

// health is a round of health checks.
func (w *World) health() {
	for _, i := range w.instances {
		roles := []placement.Role{}
		if i.config.Prefill {
			roles = append(roles, placement.Prefill)
		}
		if i.config.Decode {
			roles = append(roles, placement.Decode)
		}
		for _, role := range roles {
			if !i.up || !i.lives() {
				w.pool.Failed(role, i.String())
				continue
			}
			stats := i.scheduler.Stats()
			w.pool.Healthy(role, i.String(), placement.Report{
				Waiting: stats.Queued, Running: stats.Holding,
			})
		}
	}
	if w.open > 0 {
		w.clock.after(healthEvery, w.health)
	}
}

// named is the instance of a name.
func (w *World) named(name string) *instance {
	at := slices.IndexFunc(w.instances, func(i *instance) bool { return i.String() == name })
	return w.instances[at]
}

func (w *World) pagesFor(tokens int) int {
	return (tokens + w.config.Shape.PageSize - 1) / w.config.Shape.PageSize
}

func (w *World) mark(m Mark) { w.counts[m]++ }

func (w *World) markIf(reached bool, m Mark) {
	if reached {
		w.counts[m]++
	}
}

func (w *World) trace(format string, args ...any) {
	if w.config.Trace != nil {
		w.config.Trace(w.clock.now, fmt.Sprintf(format, args...))
	}
}

func (w *World) outcome() Outcome {
	out := Outcome{Counts: w.counts, Events: w.events, Lasted: w.clock.now}
	for _, c := range w.clients {
		out.Tokens += len(c.got)
		if c.ended && c.failure == nil {
			out.Answered++
		} else if c.ended {
			out.Failed++
		}
	}
	return out
}
