package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/bench"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/transfer"
)

// kvStream carries keys and values over loopback, transfer after transfer, as a prefill instance
// sends them to a decode instance. Both ends are in this process: its processors pay for both,
// where an instance pays for one.
type kvStream struct {
	stores   [2]*model.Model // those pages are sent and those written
	mux      *transfer.Mux
	receiver *transfer.Receiver
	sender   *transfer.Sender
	events   chan transfer.Event
	layers   int
	tokens   int // of a transfer
	pages    []kvcache.PageID
	count    atomic.Int64 // transfers begun, for their names
}

// streamTokens is the most of one transfer.
const streamTokens = 512

// openStream makes both ends, with pools of their own, beside a model.
func openStream(m *model.Model, cfg *config.Config) (*kvStream, error) {
	s := &kvStream{events: make(chan transfer.Event, 16), layers: m.Config().Layers,
		tokens: min(streamTokens, m.Config().Context)}
	for i := range (s.tokens + benchPageSize - 1) / benchPageSize {
		s.pages = append(s.pages, kvcache.PageID(i))
	}
	models, compat := [2]transfer.Model{}, (&setup{cfg: cfg}).compat(m)
	for i := range models {
		shared, err := m.Share()
		if err != nil {
			return nil, err
		}
		pool, err := shared.NewKV(len(s.pages), benchPageSize)
		if err != nil {
			return nil, err
		}
		s.stores[i] = shared
		models[i] = transfer.Model{Compat: compat, Pages: pool, SlotBytes: pool.TokenBytes()}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	if s.receiver, err = transfer.NewReceiver(transfer.ReceiverOptions{Models: models[1:],
		Address: listener.Addr().String(), Random: rand.Reader,
		Events: func(transfer.Event) {}}); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.mux = transfer.NewMux(listener, s.receiver)
	s.sender, err = transfer.NewSender(transfer.SenderOptions{Models: models[:1],
		MaxRate: int64(cfg.Transfer.MaxRate),
		Events:  func(e transfer.Event) { s.events <- e }})
	if err != nil {
		return nil, errors.Join(err, s.mux.Close(), s.receiver.Close())
	}
	return s, nil
}

func (s *kvStream) close() error {
	err := errors.Join(s.sender.Close(), s.mux.Close(), s.receiver.Close())
	for _, m := range s.stores {
		err = errors.Join(err, m.Close())
	}
	return err
}

// beside runs work while the stream runs, and says how many bytes a second it carried. Work begins
// when the first transfer is open.
func (s *kvStream) beside(ctx context.Context, work func() error) (rate float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	opened := make(chan struct{})
	var (
		carried int64
		failed  error
		done    sync.WaitGroup
	)
	done.Go(func() {
		open := sync.OnceFunc(func() { close(opened) })
		defer open()
		for failed == nil && ctx.Err() == nil {
			var n int64
			n, failed = s.once(ctx, open)
			carried += n
		}
	})
	<-opened
	begun := time.Now()
	err = work()
	stop()
	done.Wait()
	if failed != nil {
		failed = fmt.Errorf("the transfer beside it: %w", failed)
	}
	return float64(carried) / time.Since(begun).Seconds(), errors.Join(err, failed)
}

// once carries the pages once, or as far as it comes until ctx ends. The sender's timeout bounds
// it.
func (s *kvStream) once(ctx context.Context, opened func()) (bytes int64, err error) {
	id, window := fmt.Sprint("bench-", s.count.Add(1)), transfer.Window{End: s.tokens}
	text, err := s.receiver.Grant(id, transfer.Reservation{Window: window,
		Segments: [][]transfer.Segment{{{Slot: 0, Count: s.tokens}}}})
	if err != nil {
		return 0, err
	}
	defer s.receiver.Release(id)
	metadata, err := s.sender.Parse(text, window)
	if err != nil {
		return 0, err
	}
	out, err := s.sender.Open(id, metadata)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, out.Cancel)()
	for {
		e := <-s.events // One Done or Failed comes for certain.
		switch {
		case e.Kind == transfer.Opened:
			opened()
			s.send(out)
		case e.Kind == transfer.Done || ctx.Err() != nil:
			return e.Bytes, nil
		case e.Kind == transfer.Failed:
			return 0, e.Err
		}
	}
}

// send hands over all layers. What goes wrong a Failed event says, too.
func (s *kvStream) send(out *transfer.Outgoing) {
	for layer := range s.layers {
		if out.Send(0, layer, s.tokens, s.pages) != nil {
			return
		}
	}
	out.Seal()
}

// costTime is how long the stream runs by itself to tell what it takes.
const costTime = 500 * time.Millisecond

// cost is the part of the machine's processors that the stream takes while nothing runs beside it:
// what no engine can give to both.
func (s *kvStream) cost(ctx context.Context) (float64, error) {
	before, begun := processTime(), time.Now()
	_, err := s.beside(ctx, func() error {
		select {
		case <-time.After(costTime):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	spent := (processTime() - before).Seconds()
	return spent / time.Since(begun).Seconds() / float64(runtime.NumCPU()), err
}

// besideStream compares each case with the same one beside a stream.
func (r *benchRounds) besideStream(s *kvStream) {
	r.other = other{name: "beside", column: "BESIDE", ofOurs: true,
		measures: func(bench.Case) bool { return true },
		rate: func(ctx context.Context, c bench.Case, seed uint64) (float64, string, error) {
			var rate float64
			bytes, err := s.beside(ctx, func() (err error) {
				rate, err = r.subject.Once(c, seed)
				return err
			})
			r.carried = append(r.carried, bytes/1e6)
			return rate, fmt.Sprintf("   transfer %.1f MB/s", bytes/1e6), err
		}}
}
