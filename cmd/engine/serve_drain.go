package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/openai"
)

// draining is how far an instance has come in leaving: probes hear of it first, then requests are
// refused.
type draining struct{ leaving, refusing atomic.Bool }

// drainEvery is how often a draining instance looks whether it is through.
const drainEvery = 10 * time.Millisecond

// fault is the answer to those that a flag turns away.
func (i *instance) drainingFault(flag *atomic.Bool) *openai.Error {
	if !flag.Load() {
		return nil
	}
	fault := openai.Errorf(openai.CodeDraining, "",
		"the instance is draining: it finishes what it has and takes nothing new")
	fault.RetryAfter = i.shutdown.DrainTimeout
	return fault
}

// drained fills in what a server has to know of draining.
func (i *instance) drained(o *api.Options) {
	o.Leaving = func() *openai.Error { return i.drainingFault(&i.drain.leaving) }
	o.Draining = func() *openai.Error { return i.drainingFault(&i.drain.refusing) }
}

// refuse makes the instance take nothing new, or take it again.
func (i *instance) refuse(ctx context.Context, on bool) error {
	i.drain.leaving.Store(on)
	i.drain.refusing.Store(on)
	if i.engine != nil {
		return i.engine.engine.Drain(ctx, on)
	}
	return nil
}

// underWay counts what is not finished: requests being answered, and on an engine what it holds.
func (i *instance) underWay(ctx context.Context) int {
	n := 0
	if i.front != nil {
		n = i.front.Active()
	}
	if i.engine == nil {
		return n
	}
	state, err := i.engine.engine.State(ctx)
	if err != nil {
		return n
	}
	return max(n, state.Total)
}

// drainFor lets what is under way end, for at most so long or until somebody is in a hurry. It
// returns what was left then.
func (i *instance) drainFor(ctx context.Context, most time.Duration) (left int) {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		if left = i.underWay(context.WithoutCancel(ctx)); left == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-timer.C:
			return left
		case <-ctx.Done():
			return left
		}
	}
}

// leave drains the instance before it ends. A second signal ends the wait.
func (i *instance) leave() {
	hurried, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := i.shutdown
	begun := time.Now()
	i.drain.leaving.Store(true)
	i.metrics.SetReady(false)
	if c.ReadyDelay > 0 {
		i.log.Info("leaving: /ready answers 503, requests are still taken",
			"ready_delay", c.ReadyDelay.String())
		select {
		case <-time.After(c.ReadyDelay):
		case <-hurried.Done():
		}
	}
	if err := i.refuse(hurried, true); err != nil && hurried.Err() == nil {
		i.log.Error("drain", "error", err)
	}
	if n := i.underWay(hurried); n > 0 {
		i.log.Info("draining; another signal (Ctrl-C) stops now", "under_way", n,
			"most", c.DrainTimeout.String())
	}
	left := i.drainFor(hurried, c.DrainTimeout)
	i.log.Info("drained", "took", time.Since(begun).Round(time.Millisecond).String(), "lost", left)
}

// drainCall serves the operator: it begins or ends draining and says what is under way.
func (i *instance) drainCall(ctx context.Context, ask admin.Drain) (admin.Drained, error) {
	if ask.Draining != nil {
		if i.engine == nil && i.router == nil {
			return admin.Drained{}, errors.New("the instance has not started yet")
		}
		if err := i.refuse(ctx, *ask.Draining); err != nil {
			return admin.Drained{}, err
		}
		i.log.Info("draining was changed by the operator", "draining", *ask.Draining)
	}
	return admin.Drained{Draining: i.drain.refusing.Load(), UnderWay: i.underWay(ctx)}, nil
}

// stalled is how long work has waited without anything having run.
func (i *instance) stalled() time.Duration {
	switch {
	case i.router != nil:
		return i.router.Stalled()
	case i.engine != nil:
		return i.engine.engine.Stalled()
	}
	return 0
}

// watchProgress keeps the series and raises the alarm once each time.
func (i *instance) watchProgress(ctx context.Context) {
	watch := standstill{limit: i.stall, every: min(time.Second, i.stall), last: time.Now()}
	tick := time.NewTicker(watch.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		since, before := i.stalled(), watch.stands
		watch.look(time.Now(), since)
		i.metrics.SetStalled(watch.stands)
		if watch.stands && !before {
			i.log.Error("work waits and nothing runs; /health/progress answers 503",
				"since", since.Round(time.Millisecond).String(), "role", i.who.Role)
		}
		if before && !watch.stands {
			i.log.Info("work goes on")
		}
	}
}

// standstill tells work that does not go on from a process that did not run itself, as after
// SIGSTOP or a sleep of the machine: then whoever looks was late too.
type standstill struct {
	limit, every time.Duration
	last         time.Time // somebody looked
	stands       bool
}

// look takes how long nothing has gone on. A look that comes late changes nothing.
func (s *standstill) look(now time.Time, since time.Duration) {
	late := now.Sub(s.last) > 2*s.every
	s.last = now
	if !late {
		s.stands = since >= s.limit
	}
}
