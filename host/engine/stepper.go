package engine

import (
	"context"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// Stepper drives an engine from one goroutine, in place of Run and of the calls that wait: the
// stages of a turn are taken one by one, and answers come by callback, inside Hear or Conclude. It
// is how a simulation runs the loop as it ships, in virtual time and without chance. A turn is
// Hear; if that answers true, Plan, Compute and Conclude. Between those only calls and transfer
// events may come, as they do between the stages of Run; they wait for the next Hear.
type Stepper struct{ engine *Engine }

// NewStepper takes the place of Run. Either end of the transfer may be nil.
func NewStepper(e *Engine, r Receiver, s Sender) *Stepper {
	e.receiver, e.sender = r, s
	return &Stepper{e}
}

// Hear runs what was asked for and reports whether there is something to plan. After an empty plan
// there is not until something is heard; Waits says that time may change that.
func (s *Stepper) Hear() (work bool) { return s.engine.listen() }

// Waits reports whether the last plan was empty though there is work: it is worth another try after
// a while. Retry allows it.
func (s *Stepper) Waits() bool { return s.engine.stalled }

// Retry makes the next Hear answer true if there is work.
func (s *Stepper) Retry() { s.engine.stalled = false }

// Plan decides what the turn computes; the plan is valid until the turn's end.
func (s *Stepper) Plan() *scheduler.Plan { return s.engine.plan(s.engine.Now()).plan }

// Compute runs the batch of the plan.
func (s *Stepper) Compute() { s.engine.compute(&s.engine.turn) }

// Err is what the device said of the batch that was last computed; nil: it did not fail.
func (s *Stepper) Err() error { return s.engine.turn.err }

// Conclude commits and delivers what was computed, or takes it back if the device failed.
func (s *Stepper) Conclude() { s.engine.conclude(&s.engine.turn) }

// Call is a call that was made by a Stepper.
type Call struct {
	engine *Engine
	gone   bool
	sought func() *request // what it became, once it has begun
}

// Cancel gives the call up, and the stream that came of it, as the end of its context does.
func (c *Call) Cancel() {
	c.gone = true
	c.engine.inbox.put(func() {
		if c.sought != nil {
			c.engine.drop(c.sought(), cancelled())
		}
	})
}

// call puts a call into the inbox. Begin starts it and sets what it became; its error goes to
// failed, as does that of a call given up before.
func (s *Stepper) call(begin func(c *Call) error, failed func(error)) *Call {
	c := &Call{engine: s.engine}
	refused := s.engine.enqueue(func() {
		err := error(cancelled())
		if !c.gone {
			err = begin(c)
		}
		if err != nil {
			failed(err)
		}
	})
	if refused != nil {
		failed(refused)
	}
	return c
}

// became says that the call is the request r from now on.
func (c *Call) became(r *request) {
	if r != nil {
		id := r.id
		c.sought = func() *request { return c.engine.requests[id] }
	}
}

// Generate is Engine.Generate; reply is called once.
func (s *Stepper) Generate(
	ask generation.Request, reply func(generation.Stream, error),
) *Call {
	e := s.engine
	return s.call(func(c *Call) error {
		r, err := e.submit(scheduler.Local, ask, 0, 0)
		if err != nil {
			return err
		}
		c.became(r)
		reply(e.open(context.Background(), r), nil)
		return nil
	}, func(err error) { reply(nil, err) })
}

// PrepareReceive is Engine.PrepareReceive; reply is called once.
func (s *Stepper) PrepareReceive(
	ask generation.Request, end int, reply func(generation.Reservation, error),
) *Call {
	return s.call(func(c *Call) error {
		r, err := s.engine.prepare(ask, end, reply)
		c.became(r)
		return err
	}, func(err error) { reply(generation.Reservation{}, err) })
}

// RemoteSend is Engine.RemoteSend; reply is called once.
func (s *Stepper) RemoteSend(
	ask generation.Request, send generation.Send, reply func(generation.Sent, error),
) *Call {
	return s.call(func(c *Call) error {
		r, err := s.engine.beginSend(ask, send, reply)
		c.became(r)
		return err
	}, func(err error) { reply(generation.Sent{}, err) })
}

// StartGenerate is Engine.StartGenerate; reply is called once.
func (s *Stepper) StartGenerate(
	ask generation.Request, begin int, reply func(generation.Stream, error),
) *Call {
	e := s.engine
	return s.call(func(c *Call) error {
		c.sought = func() *request { return e.labels[ask.ID] }
		return e.start(pendingStart{begin: begin, ctx: context.Background(), ask: ask,
			reply: func(opened generation.Stream, err error) {
				if err == nil {
					c.sought = opened.(*stream).source
				}
				reply(opened, err)
			}})
	}, func(err error) { reply(nil, err) })
}

// Commit is Engine.Commit; reply is called once.
func (s *Stepper) Commit(id string, reply func(tokens int, err error)) {
	failed := func(err error) { reply(0, err) }
	refused := s.engine.enqueue(func() {
		if err := s.engine.beginCommit(id, reply); err != nil {
			failed(err)
		}
	})
	if refused != nil {
		failed(refused)
	}
}

// Release is Engine.Release.
func (s *Stepper) Release(id string) {
	_ = s.engine.enqueue(func() { s.engine.release(id) })
}

// Drain is Engine.Drain.
func (s *Stepper) Drain(draining bool) {
	_ = s.engine.enqueue(func() { s.engine.drain(draining) })
}

// Reset is Engine.Reset.
func (s *Stepper) Reset() { _ = s.engine.enqueue(s.engine.scheduler.Reset) }

// Holdings count what an engine keeps of its requests: all of them, reservations under a client's
// ID, leases, remote sends, and sequences whose pages wait for their writer to be fenced.
type Holdings struct{ Requests, Labels, Leases, Sends, Fencing int }

// Holdings counts what is held now.
func (s *Stepper) Holdings() Holdings {
	e := s.engine
	return Holdings{Requests: len(e.requests), Labels: len(e.labels), Leases: len(e.leases),
		Sends: len(e.sends), Fencing: len(e.fencing)}
}
