package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
)

// call is a call of the front to an instance, over a network: it arrives late, its answer too, and
// one to an instance that dies is lost.
type call struct {
	client            *client
	to                *instance
	life              int
	began             time.Duration
	over              bool // its answer has come, or nobody waits for it
	answered, streams bool // the instance has answered; the answer is a stream
	silent            int  // questions without an answer, in a row
	real              *engine.Call
	lost              func()
}

// While a call is under way the front asks the instance now and then whether it lives, and gives it
// up after so many questions without an answer; patience is how long it waits in any case.
const (
	probeEvery = time.Second
	silences   = 3
	patience   = 90 * time.Second
)

// requestTimeout is how long an instance works for one request.
const requestTimeout = time.Minute

// dial makes a call: begin is run there, with a function that brings an answer back.
func (c *client) dial(
	to *instance, begin func(s *engine.Stepper, answer func(func())) *engine.Call, lost func(),
) *call {
	w := c.world
	k := &call{client: c, to: to, life: to.life, lost: lost, began: w.clock.now}
	c.call = k
	answer := func(deliver func()) {
		k.answered = true
		if !k.over {
			w.carry(to, func() { k.end(deliver) })
		}
	}
	if !to.up {
		w.clock.after(w.config.Latency, k.breaks)
		return k
	}
	to.pending = append(to.pending, k)
	w.carry(to, func() {
		to.run(k.life, func() {
			if k.over {
				return
			}
			k.real = begin(to.stepper, answer)
			to.kick()
			to.later(requestTimeout, k.expire)
		})
	})
	w.clock.after(probeEvery, k.watch)
	return k
}

// expire ends a request that has taken longer than an instance allows, if nobody is there for it:
// whoever asked has gone, and the word of it was lost.
func (k *call) expire() {
	reader := k.client.reader
	read := reader != nil && reader.call == k && !reader.over
	if k.real == nil || !k.over || read || k.answered && !k.streams {
		return
	}
	k.real.Cancel()
	k.to.kick()
}

// watch gives the call up if the instance does not say either that it lives.
func (k *call) watch() {
	if k.over {
		return
	}
	w := k.client.world
	k.silent++
	if k.to.lives() {
		k.silent = 0
	}
	switch {
	case k.silent >= silences:
		k.cancel()
		k.lost()
	case w.clock.now-k.began > patience:
		k.cancel()
		k.client.exhausted()
	default:
		w.clock.after(probeEvery, k.watch)
	}
}

// end takes the answer, unless nobody waits for it.
func (k *call) end(deliver func()) {
	if !k.over {
		k.close()
		deliver()
	}
}

// breaks is the connection's end.
func (k *call) breaks() {
	if !k.over {
		k.over = true
		k.client.world.clock.after(k.client.world.config.Latency, k.lost)
	}
}

func (k *call) close() {
	k.over = true
	k.to.pending = slices.DeleteFunc(k.to.pending, func(o *call) bool { return o == k })
}

// cancel gives the call up: the instance sees the connection end.
func (k *call) cancel() {
	if k.over {
		return
	}
	k.close()
	k.hangUp()
}

// hangUp tells the instance that nobody waits for the call, or reads the stream, any more.
func (k *call) hangUp() {
	k.client.world.carry(k.to, func() {
		k.to.run(k.life, func() {
			if k.real != nil {
				k.real.Cancel()
				k.to.kick()
			}
		})
	})
}

// lives reports whether an instance would answer the front.
func (i *instance) lives() bool { return !i.paused && i.cutUntil <= i.world.clock.now }

// longestDelay is how long the network keeps a message; after that it is lost.
const longestDelay = silences * probeEvery

// carry takes a message from the front to an instance, or back.
func (w *World) carry(i *instance, deliver func()) {
	w.clock.after(w.config.Latency, func() {
		switch left := i.cutUntil - w.clock.now; {
		case left <= 0:
			deliver()
		case left < longestDelay:
			w.clock.after(left, deliver)
		default:
			w.mark(MessageLost)
		}
	})
}

// reader takes the tokens of a stream to a client.
type reader struct {
	client *client
	from   *instance
	life   int
	stream generation.Stream
	call   *call // that it is the answer of
	silent int   // questions to the instance without an answer, in a row
	over   bool
}

// spent is a context that has ended: a stream that has nothing says so at once.
var spent = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// read lets the quick readers of an instance look what came.
func (i *instance) read() {
	for _, r := range slices.Clone(i.readers) {
		if r.client.ask.ReadEvery == 0 {
			r.look()
		}
	}
}

// look takes all that has come.
func (r *reader) look() {
	for !r.over && r.from.up && r.life == r.from.life && r.from.lives() {
		update, err := r.stream.Next(spent)
		if errors.Is(err, context.Canceled) {
			return
		}
		c := r.client
		preempted := len(r.from.preempted) > 0
		c.take(c.world.config.Bug.tokens(update.Tokens, preempted), update.Logprobs)
		if n := c.ask.StopAfter; n > 0 && len(c.got) >= n && !c.stopped {
			c.stopped = true
			c.world.mark(StoppedByReader)
			r.stream.Stop()
			r.from.kick()
		}
		if err != nil || update.Finish != "" {
			r.close()
			c.finish(update, err)
		}
	}
}

// watch gives a stream up whose instance says nothing at all any more.
func (r *reader) watch() {
	if r.over {
		return
	}
	r.silent++
	if r.from.lives() {
		r.silent = 0
	}
	if r.silent < silences {
		r.client.world.clock.after(probeEvery, r.watch)
		return
	}
	r.client.world.mark(StreamSilent)
	r.close()
	r.call.hangUp()
	r.client.lostDecode()
}

// slowly looks now and then.
func (r *reader) slowly() {
	if !r.over {
		r.look()
		r.client.world.clock.after(r.client.ask.ReadEvery, r.slowly)
	}
}

func (r *reader) close() {
	r.over = true
	r.from.readers = slices.DeleteFunc(r.from.readers, func(o *reader) bool { return o == r })
}

// lost is the end of a stream whose instance has died.
func (r *reader) lost() {
	if !r.over {
		r.over = true
		r.client.lostDecode()
	}
}
