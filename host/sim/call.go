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
	client *client
	to     *instance
	life   int
	began  time.Duration
	over   bool // answered, lost or given up
	silent int  // questions without an answer, in a row
	real   *engine.Call
	lost   func()
}

// While a call is under way the front asks the instance now and then whether it lives, and gives it
// up after so many questions without an answer; patience is how long it waits in any case.
const (
	probeEvery = time.Second
	silences   = 3
	patience   = 40 * time.Second
)

// dial makes a call: begin is run there, with a function that brings an answer back.
func (c *client) dial(
	to *instance, begin func(s *engine.Stepper, answer func(func())) *engine.Call, lost func(),
) *call {
	w := c.world
	k := &call{client: c, to: to, life: to.life, lost: lost, began: w.clock.now}
	c.call = k
	answer := func(deliver func()) {
		if !k.over {
			w.clock.after(w.config.Latency, func() { k.end(deliver) })
		}
	}
	if !to.up {
		w.clock.after(w.config.Latency, k.breaks)
		return k
	}
	to.pending = append(to.pending, k)
	w.clock.after(w.config.Latency, func() {
		to.run(k.life, func() {
			if k.over {
				return
			}
			k.real = begin(to.stepper, answer)
			to.kick()
		})
	})
	w.clock.after(probeEvery, k.watch)
	return k
}

// watch gives the call up if the instance does not say either that it lives.
func (k *call) watch() {
	if k.over {
		return
	}
	w := k.client.world
	k.silent++
	if !k.to.paused {
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
	k.client.world.clock.after(k.client.world.config.Latency, func() {
		k.to.run(k.life, func() {
			if k.real != nil {
				k.real.Cancel()
				k.to.kick()
			}
		})
	})
}

// reader takes the tokens of a stream to a client.
type reader struct {
	client *client
	from   *instance
	life   int
	stream generation.Stream
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
	for !r.over && r.from.up && r.life == r.from.life {
		update, err := r.stream.Next(spent)
		if errors.Is(err, context.Canceled) {
			return
		}
		c := r.client
		preempted := len(r.from.preempted) > 0
		c.take(c.world.config.Bug.tokens(update.Tokens, preempted), update.Logprobs)
		if err != nil || update.Finish != "" {
			r.close()
			c.finish(update, err)
		}
	}
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
