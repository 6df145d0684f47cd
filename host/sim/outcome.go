package sim

import (
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/placement"
)

// maxAttempts bounds the attempts at one request.
const maxAttempts = 30

// refused takes the error of a call to the decode instance: another may do better, or it is the
// end.
func (c *client) refused(err error) {
	g := generation.AsError(err)
	c.explain(g)
	if c.stopped {
		c.done() // It has enough, whatever became of the rest.
		return
	}
	c.world.markIf(g.Code == generation.CodeQueueTimeout, WaitedInVain)
	again := g.Code == generation.CodeQueueFull || g.Code == generation.CodeDraining ||
		g.Code == generation.CodeQueueTimeout ||
		g.Code == generation.CodeReservationNotFound ||
		g.Code == generation.CodeInternal && c.world.devices > c.devices
	if again && c.names < maxAttempts && c.tries < c.world.config.Retries {
		c.world.markIf(g.Code == generation.CodeInternal, FailedOverAfterDevice)
		c.again()
		return
	}
	c.fail(g)
}

// lostDecode takes the loss of the decode instance.
func (c *client) lostDecode() {
	if c.left || c.ended {
		return
	}
	if c.stopped {
		c.done()
		return
	}
	c.world.pool.Suspect(placement.Decode, c.ticket.Instance(placement.Decode))
	over := c.want.finish == generation.FinishLength || c.want.formed
	if len(c.got) == len(c.want.tokens) && over {
		c.done() // Only the word about the end was lost.
		return
	}
	if c.names < maxAttempts && c.tries < c.world.config.Retries {
		c.again()
		return
	}
	c.fail(generation.Errorf(codeLost, "the decode instance was lost"))
}

// again tries another decode instance.
func (c *client) again() {
	c.world.mark(RetriedElsewhere)
	c.giveBack()
	c.tries++
	c.beside = nil
	c.ticket.Exclude(placement.Decode)
	c.place()
}

// giveBack drops the reservation, wherever it is.
func (c *client) giveBack() {
	name := c.ticket.Instance(placement.Decode)
	if name == "" {
		return
	}
	to, id := c.world.named(name), c.id()
	life := to.life
	c.world.carry(to, func() {
		to.run(life, func() {
			to.stepper.Release(id)
			to.kick()
		})
	})
}

// fail ends the request with an error, which must have a reason.
func (c *client) fail(err *generation.Error) {
	if c.left || c.ended {
		return
	}
	c.explain(err)
	c.failure = err
	c.world.trace("%s fails: %s %v", c.id(), err.Code, err)
	c.world.markIf(err.Code == generation.CodeQueueFull, QueueFull)
	c.world.markIf(err.Code == generation.CodeContextLength, TooLong)
	c.giveBack()
	c.done()
}

// explain verifies that an error is one that may be: where nothing has gone wrong yet only a
// full queue or a request too large is an answer, and what the client asks for itself.
func (c *client) explain(err error) {
	g := generation.AsError(err)
	if g == nil {
		return
	}
	switch g.Code {
	case generation.CodeQueueFull, generation.CodeContextLength, generation.CodeInvalidValue,
		generation.CodeQueueTimeout:
		c.excused = true
		return
	case generation.CodeShed:
		if c.world.counts[Shed] > 0 {
			c.excused = true
			return
		}
	case generation.CodeCancelled:
		if c.left || c.stopped || c.excused {
			return
		}
	}
	if c.world.struck == 0 && !c.mayFail(g) || !explained(g.Code) {
		broken("%s is told %s, which nothing explains: %v", c.id(), g.Code, g)
	}
}

// mayFail reports whether an error is possible although nothing went wrong: the client did not wait
// for its own send, or pages ran out under a send.
func (c *client) mayFail(g *generation.Error) bool {
	reached := &c.world.counts
	return c.excused || c.ask.Way == Hurry || reached[SendStarved] > 0 ||
		reached[WaitedInVain] > 0 ||
		g.Code == generation.CodeNotDelivered && reached[TransferTimedOut] > 0
}

// leave is the client going away, wherever its request is.
func (c *client) leave() {
	if c.ended {
		return
	}
	c.left = true
	c.noteLeave()
	switch {
	case c.phase == "streaming":
		c.reader.close()
		c.reader.call.hangUp()
	case c.call != nil:
		c.call.cancel()
	}
	c.giveBack()
	c.done()
}

func (c *client) noteLeave() {
	w := c.world
	w.markIf(c.phase == "preparing", CancelledWhilePreparing)
	w.markIf(c.phase == "sending", CancelledWhileSending)
	w.markIf(c.phase == "starting", CancelledWhileStarting)
	w.markIf(c.phase == "streaming" && len(c.got) > 0, CancelledWhileStreaming)
	w.markIf(c.phase == "streaming" && len(c.got) == 0, CancelledWhileQueued)
}

// done is the end of the request, whatever it was.
func (c *client) done() {
	if c.ended {
		return
	}
	c.ended = true
	c.phase = "ended"
	c.ticket.Release(placement.Prefill)
	c.ticket.Release(placement.Decode)
	c.world.open--
}

// exhausted ends a request that has waited for too long: the instance's own limits come before.
func (c *client) exhausted() {
	w := c.world
	if w.struck == 0 {
		broken("%s waits for nothing in phase %q", c.id(), c.phase)
	}
	c.fail(generation.Errorf(codeLost, "no answer in time"))
}
