package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer"
)

// conn is one connection of a transfer: the machines at both ends, and bytes on their way.
type conn struct {
	world    *World
	random   *rand.Rand
	name     string
	from, to *instance
	fromLife int
	toLife   int
	out      *transfer.Dispatch
	in       *transfer.Inbound // nil until the receiver has taken the connection
	made     bool              // the connection is there
	there    pipe
	back     pipe
	corrupt  bool // the next bytes are changed
	dropped  bool // nothing passes any more
	outGone  bool // the sender's end is closed
	inGone   bool // the receiver's end is closed
	timer    [2]time.Duration
}

// pipe is one direction: bytes that were written and have not arrived. fin is that nothing follows.
type pipe struct {
	bytes  []byte
	fin    bool
	moving bool
}

// pipeBytes bounds what a pipe takes in, as the buffers of a socket do.
const pipeBytes = 4 << 10

// open begins a transfer: the connection is there after a while, or is refused.
func (i *instance) open(name string, m *transfer.Metadata) *conn {
	w := i.world
	c := &conn{
		world: w, name: name, from: i, fromLife: i.life,
		random: rand.New(rand.NewPCG(w.config.Seed, uint64(1<<20+len(w.conns)))),
		out:    transfer.NewDispatch(name, m, i.sent(), w.config.Timeout),
	}
	c.out.SetFrame(w.config.Frame)
	_, port, _ := strings.Cut(m.Address, ":")
	n, _ := strconv.Atoi(port)
	c.to = w.instances[n-1]
	if c.to == i {
		w.mark(LoopbackUsed)
	}
	w.conns = append(w.conns, c)
	w.clock.after(c.lag(), c.dial)
	return c
}

// lag is how long a message takes: connections overtake each other.
func (c *conn) lag() time.Duration {
	l := c.world.config.Latency
	return l/2 + time.Duration(c.random.Int64N(int64(l)*2))
}

func (c *conn) dial() {
	switch {
	case c.outGone:
		return
	case !c.to.up:
		c.atSender(func() { c.out.Closed(reset("dial: connection refused"), c.world.clock.now) })
	case c.world.blocked(c.from, c.to):
		c.world.clock.after(c.world.config.Timeout/4, c.dial)
	default:
		c.toLife, c.made = c.to.life, true
		c.atReceiver(func() {
			c.in = c.to.ledger.Connect(c.world.clock.now)
			c.to.inbound[c] = true
		})
		c.atSender(func() { c.out.Start(c.world.clock.now) })
	}
}

func reset(detail string) *transfer.Error {
	return &transfer.Error{Reason: transfer.Reset, Detail: detail}
}

// atSender does something at the sender's end and carries on what comes of it.
func (c *conn) atSender(do func()) {
	c.from.run(c.fromLife, func() {
		if c.outGone {
			return
		}
		do()
		c.pumpOut()
	})
}

// atReceiver does something at the receiver's end and carries on what comes of it.
func (c *conn) atReceiver(do func()) {
	c.to.run(c.toLife, func() {
		if c.inGone {
			return
		}
		do()
		c.pumpIn()
	})
}

// pumpOut writes what the sender has to say, tells its engine, and closes what is over.
func (c *conn) pumpOut() {
	now := c.world.clock.now
	c.out.Tick(now)
	for c.made && len(c.there.bytes) < pipeBytes {
		frame := c.out.Next(now)
		if frame == nil {
			break
		}
		c.there.bytes = append(c.there.bytes, frame...)
	}
	c.from.tell(c.out.Events())
	if c.out.Over() {
		c.outGone = true
		c.there.fin = true
		delete(c.from.sending, c.name)
	}
	c.move(&c.there)
	c.wait(0, c.out.Deadline(), c.outGone || !c.made, c.atSender)
}

// pumpIn does the same at the receiver's end.
func (c *conn) pumpIn() {
	now := c.world.clock.now
	c.in.Tick(now)
	if epoch := c.in.Epoch(); epoch > 0 && c.to.writers[epoch] == nil {
		c.to.writers[epoch] = c
	}
	c.back.bytes = append(c.back.bytes, c.in.Output()...)
	c.in.Written(len(c.in.Output()))
	c.to.settle()
	if epoch := c.in.Epoch(); epoch > 0 && !c.in.Over() {
		c.to.noteWaiting(epoch)
	}
	if c.in.Over() {
		c.inGone = true
		c.back.fin = true
		delete(c.to.inbound, c)
		if c.to.writers[c.in.Epoch()] == c {
			delete(c.to.writers, c.in.Epoch())
		}
	}
	c.move(&c.back)
	c.wait(1, c.in.Deadline(), c.inGone, c.atReceiver)
}

// wait lets an end's time pass at its deadline.
func (c *conn) wait(end int, deadline time.Duration, over bool, at func(func())) {
	now := c.world.clock.now
	if over || c.timer[end] > now && c.timer[end] <= deadline {
		return
	}
	deadline = max(deadline, now+time.Millisecond)
	c.timer[end] = deadline
	c.world.clock.after(deadline-now, func() {
		if c.timer[end] == deadline {
			at(func() {})
		}
	})
}

// move carries the next bytes of a pipe, some at a time.
func (c *conn) move(p *pipe) {
	if p.moving || c.dropped || len(p.bytes) == 0 && !p.fin {
		return
	}
	p.moving = true
	n := min(len(p.bytes), 1+c.random.IntN(600))
	took := c.lag() + time.Duration(n)*time.Millisecond/time.Duration(c.world.rate(c.from, c.to))
	c.world.clock.after(took, func() { c.arrive(p, n) })
}

// arrive hands bytes to the other end, or waits until the link lets them through.
func (c *conn) arrive(p *pipe, n int) {
	if c.dropped {
		return
	}
	if c.world.blocked(c.from, c.to) {
		c.world.clock.after(20*time.Millisecond, func() { c.arrive(p, n) })
		return
	}
	at, gone := c.atReceiver, &c.inGone
	if p == &c.back {
		at, gone = c.atSender, &c.outGone
	}
	if *gone {
		p.bytes, p.moving = nil, false
		return
	}
	at(func() {
		if c.dropped {
			return
		}
		bytes := p.bytes[:n]
		p.bytes, p.moving = p.bytes[n:], false
		if c.corrupt && n > 0 {
			c.corrupt = false
			bytes[c.random.IntN(n)] ^= 1 << c.random.IntN(8)
			c.world.mark(FrameDamaged)
		}
		c.take(p, bytes)
		c.move(p)
	})
	if p == &c.there && !c.outGone {
		c.atSender(func() {}) // There is room again.
	}
}

// take gives an end what arrived.
func (c *conn) take(p *pipe, bytes []byte) {
	now := c.world.clock.now
	ended := p.fin && len(p.bytes) == 0
	if p == &c.there {
		c.in.Take(bytes, now)
		if ended {
			c.in.Closed(now)
		}
		return
	}
	c.out.Take(bytes, now)
	if ended {
		c.out.Closed(reset("the receiver closed the connection"), now)
	}
}

// dies closes the end of an instance that has ended; the other hears of it.
func (c *conn) dies(i *instance) {
	mine := c.from == i && c.fromLife == i.life
	its := c.made && c.to == i && c.toLife == i.life
	if mine {
		c.outGone = true
	}
	if its {
		c.inGone = true
	}
	if mine || its {
		c.cut()
	}
}

// cut resets a connection: what is under way is lost, both ends hear of it.
func (c *conn) cut() {
	if c.dropped {
		return
	}
	c.dropped = true // Nothing passes any more.
	c.world.clock.after(c.lag(), func() {
		if c.made {
			c.atReceiver(func() { c.in.Closed(c.world.clock.now) })
		}
		c.atSender(func() { c.out.Closed(reset("reset by peer"), c.world.clock.now) })
	})
}

// tell gives events to the engine.
func (i *instance) tell(events []transfer.Event) {
	for _, e := range events {
		i.note(e)
		for _, heard := range i.world.config.Bug.heard(e, i) {
			i.engine.Heard(heard)
		}
		i.kick()
	}
}

// settle tells the engine what became of its leases, and keeps their clock going.
func (i *instance) settle() {
	i.tell(i.ledger.Events())
	if !i.ticking && i.ledger.Counts() != (transfer.LeaseCounts{}) {
		i.ticking = true
		i.later(i.world.config.Lease/4, func() {
			i.ticking = false
			i.ledger.Tick(i.world.clock.now)
			i.loseLease()
			i.settle()
			i.check()
		})
	}
}

// loseLease is a planted bug: the time of a lease counts while it is written.
func (i *instance) loseLease() {
	if i.world.config.Bug != LeaseNotRenewed {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(i.leases)) {
		if i.leases[id].writing {
			i.engine.Heard(transfer.Event{Kind: transfer.Expired, Direction: transfer.Receiving,
				ID: id})
			i.kick()
		}
	}
}

// receiverEnd is the engine's end that grants leases.
type receiverEnd struct{ *instance }

func (r receiverEnd) Grant(id string, res transfer.Reservation) (string, error) {
	i := r.instance
	text, err := i.ledger.Grant(id, i.world.config.Bug.reservation(res), i.world.clock.now)
	i.world.markIf(err != nil, LeasesUsedUp)
	if err == nil {
		i.granted(id, res)
		i.later(0, i.settle)
	}
	return text, err
}

func (r receiverEnd) Release(id string) bool {
	i := r.instance
	epoch, fenced := i.ledger.Release(id)
	if fenced {
		delete(i.leases, id)
		return true
	}
	i.world.mark(ReleasedUnderWriter)
	c := i.writers[epoch]
	if i.world.config.Bug == StaleEpoch {
		i.later(0, func() {
			i.engine.Heard(transfer.Event{Kind: transfer.Fenced, Direction: transfer.Receiving,
				ID: id})
			i.kick()
		})
		return false
	}
	if c != nil {
		i.later(0, func() { c.atReceiver(func() { c.in.Withdraw(i.world.clock.now) }) })
	}
	return i.world.config.Bug == MissingFence
}

// senderEnd is the engine's end that sends.
type senderEnd struct{ *instance }

func (s senderEnd) Parse(text string, w transfer.Window) (*transfer.Metadata, error) {
	return transfer.ParseMetadata(text, w, len(s.models))
}

func (s senderEnd) Open(id string, m *transfer.Metadata) (engine.Outgoing, error) {
	return outgoing{s.instance.open(id, m)}, nil
}

func (s senderEnd) Backlog() int64 { return 0 }

// outgoing is a transfer as the engine drives it. What it queues leaves after the call.
type outgoing struct{ *conn }

func (o outgoing) Send(model, layer, end int, pages []kvcache.PageID) error {
	defer o.pumpSoon()
	return o.out.Send(model, layer, end, pages, o.world.clock.now)
}

func (o outgoing) SealChunk(end int) {
	o.out.SealChunk(end)
	o.pumpSoon()
}

func (o outgoing) Seal() {
	o.out.SealAll()
	o.pumpSoon()
}

func (o outgoing) Cancel() {
	o.out.GiveUp(&transfer.Error{Reason: transfer.Cancelled, Detail: "given up by the sender"},
		o.world.clock.now)
	o.pumpSoon()
}

func (o outgoing) pumpSoon() {
	o.world.clock.after(0, func() { o.atSender(func() {}) })
}
