package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/placement"
)

// client is one request on its way through the front: it is placed, prepared, sent and started as
// the router does it, and its tokens are compared with the oracle's.
type client struct {
	world   *World
	ask     *Ask
	want    answer
	got     []int32
	ticket  placement.Ticket
	beside  *instance // where another answer to the same prompt is made; nil: as placed
	tries   int       // that brought nothing, since the last token
	names   int       // attempts, each under an ID of its own
	phase   string
	call    *call
	reader  *reader
	ended   bool
	left    bool // the client has gone
	stopped bool // the client has enough
	excused bool // an instance has refused a part of it
	unsent  bool // the remote send failed
	failure *generation.Error

	reserved generation.Reservation
	begin    int
	senders  int // prefill instances that were asked
	devices  int // device faults when the request was placed last
}

func (w *World) newClient(_ int, ask *Ask) *client {
	return &client{world: w, ask: ask, phase: "away"}
}

// id is the name of the current attempt.
func (c *client) id() string {
	if c.names <= 1 {
		return c.ask.Request.ID
	}
	return fmt.Sprintf("%s.%d", c.ask.Request.ID, c.names)
}

// request is what an instance is asked now: what the client wants, behind what it has.
func (c *client) request() generation.Request {
	ask := c.ask.Request
	ask.ID = c.id()
	ask.Prompt = slices.Concat(ask.Prompt, c.got)
	ask.Emitted = len(c.got)
	if c.ask.Form {
		ask.Constraint = &form{}
	}
	return ask
}

// arrive begins.
func (c *client) arrive() {
	c.want = c.world.config.Shape.oracle(c.request(), c.world.config.Context)
	c.world.markIf(c.ask.Request.Sampling.Adjusts(), Penalties)
	c.world.markIf(len(c.ask.Request.Embeds) > 0, WholeItems)
	if c.ask.Cancel > 0 {
		c.world.clock.after(c.ask.Cancel, c.leave)
	}
	if c.ask.Meddling != NoMeddling {
		c.world.clock.after(c.ask.MeddleAfter, c.meddle)
	}
	c.place()
}

// place finds instances for the request and begins with it.
func (c *client) place() {
	w := c.world
	var err error
	direct := c.ask.Way == Direct || len(c.ask.Request.Prompt) < 2
	place := w.pool.Place
	if direct {
		place = w.pool.PlaceDecode
	}
	if err = place(&c.ticket); errors.Is(err, placement.ErrTried) {
		c.ticket.Forgive()
		err = place(&c.ticket)
	}
	if err != nil {
		c.fail(generation.Errorf(generation.CodeNoDecode, "%v", err))
		return
	}
	c.names++
	c.devices = w.devices
	c.unsent = false
	c.senders = 0
	c.reserved = generation.Reservation{}
	if direct || c.ticket.Instance(placement.Prefill) == "" {
		c.generate()
		return
	}
	c.prepare()
}

func (c *client) decode() *instance {
	if c.beside != nil {
		return c.beside
	}
	return c.world.named(c.ticket.Instance(placement.Decode))
}

// branch begins another answer to the same prompt on the instance that has it, as a request with n
// above 1 does when its first token is there.
func (c *client) branch() {
	w, ask := c.world, *c.ask
	ask.Branch, ask.Way, ask.Meddling, ask.Cancel, ask.StopAfter = false, Direct, NoMeddling, 0, 0
	ask.Request.ID += "b"
	ask.Request.Sampling.Seed++
	other := &client{world: w, ask: &ask, phase: "away", beside: c.decode()}
	other.want = w.config.Shape.oracle(other.request(), w.config.Context)
	w.clients = append(w.clients, other)
	w.open++
	w.mark(Branched)
	other.names, other.devices = 1, w.devices
	other.generate()
}

// generate asks for all of it at once.
func (c *client) generate() {
	c.enter("starting")
	c.ticket.Release(placement.Prefill)
	k := c.dial(c.decode(), func(s *engine.Stepper, answer func(func())) *engine.Call {
		return s.Generate(c.request(), func(stream generation.Stream, err error) {
			answer(func() { c.started(stream, err) })
		})
	}, c.lostDecode)
	k.streams = true
}

// prepare reserves on the decode instance.
func (c *client) prepare() {
	c.enter("preparing")
	c.dial(c.decode(), func(s *engine.Stepper, answer func(func())) *engine.Call {
		return s.PrepareReceive(c.request(), c.ask.End,
			func(r generation.Reservation, err error) { answer(func() { c.prepared(r, err) }) })
	}, c.lostDecode)
}

func (c *client) prepared(r generation.Reservation, err error) {
	if err != nil {
		c.refused(err)
		return
	}
	c.reserved = c.world.config.Bug.reserved(r)
	r = c.reserved
	c.begin = max(0, r.End-c.ask.Back)
	switch {
	case c.ask.Way == Forget:
		c.ticket.Release(placement.Prefill)
		c.done()
	case r.Matched >= r.End:
		c.start()
	case r.End-r.Matched < c.ask.Threshold:
		c.world.mark(SendSkipped)
		c.begin = r.Matched
		c.start()
	default:
		c.send()
		if c.ask.Way == Hurry {
			c.hurry()
		}
	}
}

// hurry starts without waiting for the send.
func (c *client) hurry() {
	sending := c.call
	c.world.clock.after(c.world.config.Latency*3, func() {
		if c.phase == "sending" && c.call == sending && !sending.over && !c.left {
			c.world.mark(StartedBeforeDelivery)
			sending.lost = func() {}
			sending.over = true // Its answer is of no interest.
			c.start()
		}
	})
}

// send has the prefill instance fill the reservation.
func (c *client) send() {
	c.enter("sending")
	c.senders++
	to := c.world.named(c.ticket.Instance(placement.Prefill))
	if c.ask.Way == Loopback && c.decode().config.Prefill {
		to = c.decode()
	}
	c.dial(to, c.remoteSend(c.sent), func() { c.sent(generation.Errorf(codeLost, "lost")) })
}

// remoteSend is the call, whose outcome goes to then.
func (c *client) remoteSend(then func(error)) func(*engine.Stepper, func(func())) *engine.Call {
	window := generation.Send{Begin: c.reserved.Matched, End: c.reserved.End,
		Metadata: c.reserved.Metadata}
	return func(s *engine.Stepper, answer func(func())) *engine.Call {
		return s.RemoteSend(c.request(), window, func(sent generation.Sent, err error) {
			answer(func() { then(err) })
		})
	}
}

func (c *client) sent(err error) {
	if c.left {
		return
	}
	c.explain(err)
	c.unsent = err != nil
	if err != nil && c.ask.Way == Resend && c.senders < 3 {
		c.resend()
		return
	}
	if err == nil && c.ask.Way == Migrate {
		c.world.mark(DeliveredNeverStarted)
		c.done()
		return
	}
	if c.ask.Way == Commit {
		c.commit()
		return
	}
	c.start()
}

// commit keeps what was delivered, for whoever comes with the same prompt.
func (c *client) commit() {
	c.enter("committing")
	c.dial(c.decode(), func(s *engine.Stepper, answer func(func())) *engine.Call {
		s.Commit(c.id(), func(tokens int, err error) {
			answer(func() { c.committed(tokens, err) })
		})
		return nil // It ends with its reservation.
	}, c.lostDecode)
}

func (c *client) committed(tokens int, err error) {
	if err != nil {
		c.refused(err)
		return
	}
	if tokens != c.reserved.End {
		broken("%s committed %d of %d tokens", c.id(), tokens, c.reserved.End)
	}
	c.world.mark(Committed)
	c.done()
}

// resend tries another prefill instance, which may go on where the first had got to.
func (c *client) resend() {
	c.ticket.Exclude(placement.Prefill)
	held := c.ticket.Instance(placement.Decode)
	next := slices.IndexFunc(c.world.pool.Snapshot(), func(s placement.Instance) bool {
		return s.Role == placement.Prefill && s.Up
	})
	if next < 0 {
		c.start()
		return
	}
	name := c.world.pool.Snapshot()[next].Name
	c.enter("sending")
	c.senders++
	c.world.trace("%s sends again from %s to %s", c.id(), name, held)
	c.dial(c.world.named(name), c.remoteSend(c.sent),
		func() { c.sent(generation.Errorf(codeLost, "lost")) })
}

// start lets the decode instance go on from the reservation.
func (c *client) start() {
	c.enter("starting")
	c.ticket.Release(placement.Prefill)
	w := c.world
	w.markIf(c.begin < c.reserved.End && c.begin > c.reserved.Matched, GapPrefilled)
	k := c.dial(c.decode(), func(s *engine.Stepper, answer func(func())) *engine.Call {
		return s.StartGenerate(c.request(), c.begin,
			func(stream generation.Stream, err error) {
				answer(func() { c.started(stream, err) })
			})
	}, c.lostDecode)
	k.streams = true
}

func (c *client) started(stream generation.Stream, err error) {
	if err != nil {
		c.refused(err)
		return
	}
	c.enter("streaming")
	c.world.markIf(c.unsent, Recomputed)
	c.world.markIf(len(c.got) > 0, ResumedElsewhere)
	from := c.decode()
	c.reader = &reader{client: c, from: from, life: from.life, stream: stream, call: c.call}
	from.readers = append(from.readers, c.reader)
	c.world.clock.after(probeEvery, c.reader.watch)
	if c.ask.ReadEvery > 0 {
		c.world.mark(SlowReader)
		c.reader.slowly()
		return
	}
	c.reader.look()
}

// take compares tokens with what they must be.
func (c *client) take(tokens []int32, logprobs []generation.Logprobs) {
	at := len(c.got)
	c.got = append(c.got, tokens...)
	if len(tokens) > 0 {
		c.tries = 0
		if at == 0 && c.ask.Branch {
			c.branch()
		}
	}
	if len(c.got) > len(c.want.tokens) || !slices.Equal(c.got, c.want.tokens[:len(c.got)]) {
		broken("%s has tokens %v, must have %v", c.id(), c.got, c.want.tokens)
	}
	if c.ask.Request.Logprobs && len(logprobs) != len(tokens) {
		broken("%s has %d log-probabilities for %d tokens", c.id(), len(logprobs), len(tokens))
	}
	for k, l := range logprobs {
		want := c.want.logprobs[at+k]
		if l.Chosen != want {
			broken("%s has log-probability %v, must have %v", c.id(), l.Chosen, want)
		}
	}
}

// finish takes the end of the stream (I7: it comes once, and last).
func (c *client) finish(update generation.Update, err error) {
	if err != nil {
		c.refused(err)
		return
	}
	whole := len(c.got) == len(c.want.tokens) && update.Finish == c.want.finish
	if !whole && (!c.stopped || update.Finish != generation.FinishStop) {
		broken("%s ends with %d tokens and %q, must with %d and %q",
			c.id(), len(c.got), update.Finish, len(c.want.tokens), c.want.finish)
	}
	c.world.mark(Completed)
	embeds := c.ask.Request.Embeds
	c.world.markIf(len(embeds) > 0 && update.Report.Cached >= embeds[0].End(), ItemsMatched)
	c.world.markIf(update.Finish == generation.FinishStop, EndedByToken)
	c.world.markIf(c.want.formed, Formed)
	c.done()
	if c.ask.Way == Stale && c.reserved.Metadata != "" {
		c.sendStale()
	}
}

// sendStale sends once more to a reservation that has gone: it must be refused.
func (c *client) sendStale() {
	for _, i := range c.world.instances {
		if !i.up || !i.config.Prefill || c.reserved.Matched >= c.reserved.End {
			continue
		}
		c.dial(i, c.remoteSend(func(err error) {
			if err == nil {
				broken("%s was sent to a reservation that had ended", c.id())
			}
		}), func() {})
		return
	}
}

// enter begins a phase.
func (c *client) enter(phase string) {
	c.phase = phase
	c.world.trace("%s is %s: %v, %s to %s", c.id(), phase, c.ask.Way,
		c.ticket.Instance(placement.Prefill), c.ticket.Instance(placement.Decode))
}
