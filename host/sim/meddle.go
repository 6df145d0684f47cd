package sim

import (
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/placement"
)

// meddle is somebody who calls under the name of a request that is under way. The request may be
// spoiled by it, which its client is told; nobody else may.
func (c *client) meddle() {
	name := c.ticket.Instance(placement.Decode)
	if c.ended || name == "" {
		return
	}
	c.world.mark(Meddled)
	c.excused = true
	c.world.trace("somebody meddles with %s: %v", c.id(), c.ask.Meddling)
	at, ask := c.world.named(name), c.request()
	reserved := c.reserved
	if c.ask.Meddling == SendAgain {
		at = c.world.instances[len(c.world.instances)-1]
	}
	at.run(at.life, func() {
		c.interfere(at.stepper, ask, reserved)
		at.kick()
	})
}

// interfere makes the call; a stream that comes of it is given up at once.
func (c *client) interfere(
	s *engine.Stepper, ask generation.Request, reserved generation.Reservation,
) {
	switch c.ask.Meddling {
	case ReleaseAgain:
		s.Release(ask.ID)
	case PrepareAgain:
		s.PrepareReceive(ask, -1, func(r generation.Reservation, err error) {
			if err == nil {
				s.Release(ask.ID)
			}
		})
	case SendAgain:
		window := generation.Send{Begin: reserved.Matched, End: reserved.End,
			Metadata: reserved.Metadata}
		s.RemoteSend(ask, window, func(generation.Sent, error) {})
	case StartAgain:
		var call *engine.Call
		call = s.StartGenerate(ask, c.begin, func(stream generation.Stream, err error) {
			if err == nil {
				call.Cancel()
			}
		})
	}
}
