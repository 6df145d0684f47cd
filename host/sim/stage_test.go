package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// stage is a world for one scenario of the protocol's specification: no clients and no faults but
// those that the scenario brings itself. Instances have 257 pages of 16 tokens, a budget of 128 and
// room for 4 sequences.
type stage struct {
	*World
	t       *testing.T
	prefill *instance
	decode  *instance
}

// newStage is a prefill and a decode instance, with what change says.
func newStage(t *testing.T, change func(*Config)) *stage {
	t.Helper()
	instance := InstanceConfig{
		Pages: 257, PrefixPages: -1, MaxInflight: 4, StepTime: time.Millisecond,
		Limits: scheduler.Limits{MaxSeqs: 4, TokenBudget: 128, MaxQueue: 100},
	}
	c := Config{
		Shape: shape{PageSize: 16, Layers: 2}, Context: 2048,
		Timeout: 4 * time.Second, Lease: 60 * time.Second, Latency: time.Millisecond, Rate: 10000,
		Frame: 1 << 16, Recompute: true, Retries: 2,
		Instances: []InstanceConfig{instance, instance},
	}
	c.Instances[0].Prefill, c.Instances[1].Decode = true, true
	if change != nil {
		change(&c)
	}
	s := &stage{World: newWorld(c), t: t}
	s.begin()
	s.prefill, s.decode = s.instances[0], s.instances[len(s.instances)-1]
	return s
}

// prompt is so many tokens; prompts of different kinds share nothing.
func prompt(kind, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(1 + (kind+i*(kind+3))%(vocabulary-1))
	}
	return tokens
}

func ask(id string, prompt []int32, most int) generation.Request {
	return generation.Request{ID: id, Prompt: prompt, MaxTokens: most, IgnoreEOS: true}
}

// until lets time pass until something holds, or gives the scenario up.
func (s *stage) until(what string, holds func() bool) {
	s.t.Helper()
	s.catch(func() {
		for deadline := s.clock.now + 10*time.Minute; !holds(); {
			if !s.clock.next() || s.clock.now > deadline {
				s.t.Fatalf("never: %s", what)
			}
		}
	})
}

// pass lets some time pass.
func (s *stage) pass(d time.Duration) {
	s.t.Helper()
	over := false
	s.clock.after(d, func() { over = true })
	s.until(fmt.Sprint("pass ", d), func() bool { return over })
}

// catch turns a broken invariant into a failure of the test.
func (s *stage) catch(do func()) {
	s.t.Helper()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case violation:
			s.t.Fatal(e.error)
		default:
			panic(e)
		}
	}()
	do()
}

// answered is what became of a call; times counts the answers.
type answered[T any] struct {
	value  T
	err    error
	times  int
	at     time.Duration
	cancel func()
}

func (a *answered[T]) ended() bool { return a.times > 0 }

// code is that of the error, "" without one.
func (a *answered[T]) code() generation.Code {
	if a.err == nil {
		return ""
	}
	return generation.AsError(a.err).Code
}

func reply[T any](s *stage, a *answered[T]) func(T, error) {
	return func(value T, err error) {
		a.value, a.err, a.at = value, err, s.clock.now
		a.times++
	}
}

// prepareLater asks an instance for a reservation.
func (s *stage) prepareLater(
	i *instance, ask generation.Request, end int,
) *answered[generation.Reservation] {
	a := &answered[generation.Reservation]{}
	a.cancel = i.stepper.PrepareReceive(ask, end, reply(s, a)).Cancel
	i.kick()
	return a
}

// prepare waits for the reservation, which must come.
func (s *stage) prepare(ask generation.Request, end int) generation.Reservation {
	s.t.Helper()
	a := s.prepareLater(s.decode, ask, end)
	s.until("a reservation", a.ended)
	if a.err != nil {
		s.t.Fatalf("prepare: %v", a.err)
	}
	return a.value
}

// sendLater asks an instance to fill a reservation.
func (s *stage) sendLater(
	i *instance, ask generation.Request, r generation.Reservation,
) *answered[generation.Sent] {
	a := &answered[generation.Sent]{}
	window := generation.Send{Begin: r.Matched, End: r.End, Metadata: r.Metadata}
	a.cancel = i.stepper.RemoteSend(ask, window, reply(s, a)).Cancel
	i.kick()
	return a
}

// send waits for the end of the send, which must be good.
func (s *stage) send(ask generation.Request, r generation.Reservation) generation.Sent {
	s.t.Helper()
	a := s.sendLater(s.prefill, ask, r)
	s.until("the send's end", a.ended)
	if a.err != nil {
		s.t.Fatalf("send: %v", a.err)
	}
	return a.value
}

// startLater asks the decode instance to go on from a reservation.
func (s *stage) startLater(ask generation.Request, begin int) *answered[generation.Stream] {
	a := &answered[generation.Stream]{}
	a.cancel = s.decode.stepper.StartGenerate(ask, begin, reply(s, a)).Cancel
	s.decode.kick()
	return a
}

// generateLater asks an instance for all of it.
func (s *stage) generateLater(i *instance, ask generation.Request) *answered[generation.Stream] {
	a := &answered[generation.Stream]{}
	a.cancel = i.stepper.Generate(ask, reply(s, a)).Cancel
	i.kick()
	return a
}

// output is what a stream came to.
type output struct {
	tokens []int32
	last   generation.Update
	ends   int
	err    error
}

// drain reads a stream to its end, and once more: there must be no second end.
func (s *stage) drain(a *answered[generation.Stream]) output {
	s.t.Helper()
	s.until("a stream", a.ended)
	if a.err != nil {
		return output{err: a.err}
	}
	var out output
	s.until("the stream's end", func() bool {
		update, err := a.value.Next(spent)
		out.tokens = append(out.tokens, update.Tokens...)
		if err != nil && err != spent.Err() {
			out.err = err
			return true
		}
		if update.Finish != "" {
			out.last = update
			out.ends++
		}
		return out.ends > 0
	})
	return out
}

// expect compares an output with the oracle's.
func (s *stage) expect(ask generation.Request, out output) {
	s.t.Helper()
	want := s.config.Shape.oracle(ask, s.config.Context)
	if out.err != nil || !slices.Equal(out.tokens, want.tokens) || out.last.Finish != want.finish {
		s.t.Fatalf("%s: %v %q (%v), must be %v %q", ask.ID, out.tokens, out.last.Finish, out.err,
			want.tokens, want.finish)
	}
}

// pages are how many pages of an instance are free, referenced, evictable and in quarantine.
type pages struct{ free, held, evictable, quarantined int }

func (s *stage) pages(i *instance) pages {
	st := i.scheduler.Stats()
	return pages{st.Free, st.Held, st.Evictable, st.Quarantined}
}

func (s *stage) expectPages(i *instance, want pages) {
	s.t.Helper()
	if got := s.pages(i); got != want {
		s.t.Fatalf("%v: pages %+v, want %+v", i, got, want)
	}
}

// settles lets everything come to its end and verifies that nothing is left.
func (s *stage) settles() {
	s.t.Helper()
	s.catch(s.end)
}

// leases are the leases of an instance.
func leases(i *instance) transfer.LeaseCounts { return i.ledger.Counts() }
