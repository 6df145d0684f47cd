package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// gated is a device that computes a step for each token of the gate.
type gated struct {
	*fakeModel
	gate, entered, over chan struct{}
}

func (g *gated) Run(b *batch.Batch) ([][]float32, error) {
	g.entered <- struct{}{}
	select {
	case <-g.gate:
	case <-g.over:
	}
	return g.fakeModel.Run(b)
}

// gatedEngine runs one sequence at a time, step by step, by a clock that the test sets.
func gatedEngine(t *testing.T, l scheduler.Limits) (*Engine, *gated, *atomic.Int64) {
	t.Helper()
	s, err := scheduler.New(scheduler.Options{Limits: l, Pages: 40, PageSize: pageSize,
		MaxModelLen: 80, PrefixPages: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{newFake(40, sight{}), make(chan struct{}), make(chan struct{}, 1),
		make(chan struct{})}
	clock := &atomic.Int64{}
	clock.Store(int64(time.Second))
	e := New(Options{Models: []Runner{g}, Scheduler: s, Context: 80, MaxPending: 10,
		QueueTimeout: 30 * time.Second,
		Clock:        func() time.Duration { return time.Duration(clock.Load()) }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		close(g.over) // Not the gate: somebody may still be knocking.
		running.Wait()
	})
	return e, g, clock
}

// step lets the device finish a step and waits until it has the next one.
func (g *gated) step() {
	g.gate <- struct{}{}
	<-g.entered
}

// TestWhoWaitsTooLongIsTold: a request that got no page for queue_timeout is answered; the one that
// runs goes on, however long it takes.
func TestWhoWaitsTooLongIsTold(t *testing.T) {
	e, g, clock := gatedEngine(t, scheduler.Limits{MaxSeqs: 1, TokenBudget: 16, MaxQueue: 4})
	ask := generation.Request{Prompt: prompt(5, 1), MaxTokens: 40}
	first, err := e.Generate(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	begun := make(chan generation.Stream)
	go func() {
		s, err := e.Generate(t.Context(), ask)
		if err != nil {
			t.Error(err)
		}
		begun <- s
	}()
	for e.inbox.empty() { // It is on its way.
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	g.step()
	second := <-begun
	clock.Add(int64(29 * time.Second))
	g.step()
	clock.Add(int64(2 * time.Second))
	g.step()
	_, err = second.Next(t.Context())
	if f := generation.AsError(err); f == nil || f.Code != generation.CodeQueueTimeout {
		t.Errorf("after 31 s: %v", err)
	}
	go func() {
		for {
			select {
			case g.gate <- struct{}{}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	go func() {
		for range g.entered {
		}
	}()
	if got, err := read(t.Context(), first); err != nil || len(got) != ask.MaxTokens {
		t.Errorf("the one that runs: %d tokens, %v", len(got), err)
	}
}

// TestNoProgressIsSeenFromOutside: while a step hangs, the time since something ran grows, and
// nobody asks the loop for it. With the next step it is small again, and an idle engine is never
// stalled.
func TestNoProgressIsSeenFromOutside(t *testing.T) {
	e, g, clock := gatedEngine(t, scheduler.Limits{MaxSeqs: 2, TokenBudget: 16, MaxQueue: 4})
	clock.Add(int64(time.Hour))
	if d := e.Stalled(); d != 0 {
		t.Errorf("idle: %v", d)
	}
	s, err := e.Generate(t.Context(), generation.Request{Prompt: prompt(5, 1), MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	clock.Add(int64(11 * time.Second))
	if d := e.Stalled(); d < 11*time.Second || d > 12*time.Second {
		t.Errorf("a step hangs for 11 s: %v", d)
	}
	g.step()
	if d := e.Stalled(); d != 0 {
		t.Errorf("after a step: %v", d)
	}
	g.step()
	g.gate <- struct{}{}
	if got, err := read(t.Context(), s); err != nil || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestDrainingFinishesWhatIsUnderWay: reservations and sends are refused, what was prepared before
// may still be started.
func TestDrainingFinishesWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, small())
	ask := generation.Request{ID: "a", Prompt: prompt(9, 3), MaxTokens: 4}
	if _, err := w.decode.PrepareReceive(t.Context(), ask, -1); err != nil {
		t.Fatal(err)
	}
	if err := w.decode.Drain(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	other := ask
	other.ID = "b"
	_, err := w.decode.PrepareReceive(t.Context(), other, -1)
	_, errStart := w.decode.StartGenerate(t.Context(), other, 0)
	_, errSend := w.decode.RemoteSend(t.Context(), other, generation.Send{End: 8})
	for _, err := range []error{err, errStart} {
		if code(err) != generation.CodeDraining {
			t.Errorf("%v", err)
		}
	}
	if errSend == nil {
		t.Error("a remote send was taken")
	}
	s, err := w.decode.StartGenerate(t.Context(), ask, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(t.Context(), s); err != nil || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	if err := w.decode.Drain(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if s, err = w.decode.StartGenerate(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.rest()
}

// TestSendWithoutPagesIsGivenUp: one engine is both ends, and what it reserved leaves no pages for
// the rest of what it is to send. The reservation waits for the send and the send for its pages.
func TestSendWithoutPagesIsGivenUp(t *testing.T) {
	o := small()
	o.pages, o.queueTimeout = 30, 100*time.Millisecond
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(70, 3), MaxTokens: 4}
	reserved, err := w.decode.PrepareReceive(t.Context(), ask, -1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.decode.RemoteSend(t.Context(), ask, generation.Send{Begin: reserved.Matched,
		End: reserved.End, Metadata: reserved.Metadata})
	if code(err) != generation.CodeQueueTimeout {
		t.Fatalf("sent: %v", err)
	}
	s, err := w.decode.StartGenerate(t.Context(), ask, reserved.End)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t.Context(), s)
	if want := oracle(ask.Prompt, 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v (%v), want %v", got, err, want)
	}
	w.rest()
}
