package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

const (
	fakeLayers = 3
	fakeWords  = 61
	pageSize   = 4
)

// fakeModel keeps in each slot a fingerprint of the token there and of the slot before, and
// chooses the next token from all slots of a sequence. Any mistake in paging, chunking, sharing or
// transfer becomes another token. With a window an entry hangs on all that its position sees.
type fakeModel struct {
	sight
	mu    sync.Mutex
	slots [fakeLayers][]uint64
	fail  error // of the next run
	mute  error // of every reading of its pages
	last  []batch.Item
}

// errGone is a device's last word.
var errGone = errors.New("device gone")

// sight is what a position sees: all before it, or a window of them and sinks.
type sight struct{ window, sinks int }

func (s sight) sees(position, key int) bool {
	return s.window == 0 || key > position-s.window || key < s.sinks
}

func newFake(pages int, s sight) *fakeModel {
	f := &fakeModel{sight: s}
	for l := range f.slots {
		f.slots[l] = make([]uint64, pages*pageSize)
	}
	return f
}

func mix(a, b uint64) uint64 {
	x := (a ^ b*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	return x ^ x>>29
}

func slotOf(pages []kvcache.PageID, position int) int {
	return int(pages[position/pageSize])*pageSize + position%pageSize
}

// Run implements Runner.
func (f *fakeModel) Run(b *batch.Batch) ([][]float32, error) {
	if err := f.fail; err != nil {
		f.fail = nil
		return nil, err
	}
	f.last = b.Items
	f.copy(b.Copies)
	for layer := range fakeLayers {
		f.mu.Lock()
		for i := range b.Items {
			f.append(&b.Items[i], layer)
		}
		f.mu.Unlock()
		if b.LayerDone != nil {
			b.LayerDone(layer)
		}
	}
	var rows [][]float32
	for i := range b.Items {
		for range b.Items[i].Logits {
			rows = append(rows, f.logits(&b.Items[i]))
		}
	}
	return rows, nil
}

func (f *fakeModel) copy(copies []batch.Copy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range copies {
		for l := range f.slots {
			for t := range c.Tokens {
				f.slots[l][int(c.To)*pageSize+t] = f.slots[l][int(c.From)*pageSize+t]
			}
		}
	}
}

func (f *fakeModel) append(item *batch.Item, layer int) {
	for i, token := range tokensOf(item) {
		position, before := item.Start+i, uint64(layer)
		for key := range position {
			if f.window > 0 && f.sees(position, key) || key == position-1 {
				before = mix(before, f.slots[layer][slotOf(item.Pages, key)])
			}
		}
		f.slots[layer][slotOf(item.Pages, position)] = mix(before, uint64(token)+1)
	}
}

// tokensOf are an item's tokens; a vector is its one number.
func tokensOf(item *batch.Item) []int32 {
	if len(item.Embeds) == 0 {
		return item.Tokens
	}
	tokens := slices.Clone(item.Tokens)
	for _, e := range item.Embeds {
		for i, x := range e.Values {
			tokens[e.Start-item.Start+i] = int32(x)
		}
	}
	return tokens
}

// logits reads every slot that the sequence's last position sees.
func (f *fakeModel) logits(item *batch.Item) []float32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := uint64(0)
	last := item.Start + len(item.Tokens) - 1
	for position := range last + 1 {
		for l := range f.slots {
			if f.sees(last, position) {
				sum = mix(sum, f.slots[l][slotOf(item.Pages, position)])
			}
		}
	}
	row := make([]float32, fakeWords)
	row[sum%fakeWords] = 1
	return row
}

// oracle computes what the model must say, from the tokens alone.
func oracle(prompt []int32, n int) []int32 { return sight{}.oracle(prompt, n) }

func (s sight) oracle(prompt []int32, n int) []int32 {
	tokens := append([]int32(nil), prompt...)
	var entries [][fakeLayers]uint64
	for len(tokens) < len(prompt)+n {
		for at := len(entries); at < len(tokens); at++ {
			var entry [fakeLayers]uint64
			for l := range entry {
				entry[l] = uint64(l)
				for key := range entries {
					if s.window > 0 && s.sees(at, key) || key == at-1 {
						entry[l] = mix(entry[l], entries[key][l])
					}
				}
				entry[l] = mix(entry[l], uint64(tokens[at])+1)
			}
			entries = append(entries, entry)
		}
		sum := uint64(0)
		for key, entry := range entries {
			for _, x := range entry {
				if s.sees(len(tokens)-1, key) {
					sum = mix(sum, x)
				}
			}
		}
		tokens = append(tokens, int32(sum%fakeWords))
	}
	return tokens[len(prompt):]
}

// ReadPage implements transfer.Pages.
func (f *fakeModel) ReadPage(layer int, r kvcache.SlotRange, dst []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mute != nil {
		return f.mute
	}
	for i := range r.Count {
		binary.LittleEndian.PutUint64(dst[8*i:], f.slots[layer][int(r.Page)*pageSize+r.First+i])
	}
	return nil
}

// WritePage implements transfer.Pages.
func (f *fakeModel) WritePage(layer int, r kvcache.SlotRange, src []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range r.Count {
		f.slots[layer][int(r.Page)*pageSize+r.First+i] = binary.LittleEndian.Uint64(src[8*i:])
	}
	return nil
}

// world is a prefill and a decode engine joined by a socket.
type world struct {
	t               *testing.T
	prefill, decode *Engine
	models          [2]*fakeModel
	drafts          [2][]*fakeDraft
	options         worldOptions
	overtaken       atomic.Int64 // transfers, as the watches heard
	log             heard        // of both
}

type worldOptions struct {
	pages, seqs, budget, context int
	recompute                    bool
	queueTimeout                 time.Duration
	rate                         int64
	sight                        // of the model
	// drafts are the pools and windows of the models beside it; alone leaves them out of the
	// prefill engine.
	drafts []scheduler.Memory
	alone  bool
	// policies decide in the two engines; nil is the built-in one.
	policies [2]scheduler.Policy
	lease    time.Duration
}

func newWorld(t *testing.T, o worldOptions) *world {
	w := &world{t: t, options: o}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ends []interface{ Close() error }
	for i := range 2 {
		w.models[i] = newFake(o.pages, o.sight)
		e := w.engine(i)
		models := []transfer.Model{{
			Compat: transfer.Compat{Model: "fake", PageSize: pageSize, Layers: fakeLayers,
				Window: o.window, Sinks: o.sinks},
			Pages: w.models[i], SlotBytes: 8,
		}}
		for _, d := range w.drafts[i] {
			models = append(models, transfer.Model{
				Compat: transfer.Compat{Model: "draft", PageSize: pageSize, Layers: fakeLayers,
					Window: d.window, Sinks: d.sinks},
				Pages: d, SlotBytes: 8,
			})
		}
		receiver, err := transfer.NewReceiver(transfer.ReceiverOptions{Models: models,
			Address: listener.Addr().String(), Random: rand.Reader, Events: e.Heard})
		if err != nil {
			t.Fatal(err)
		}
		sender, err := transfer.NewSender(transfer.SenderOptions{Models: models, Events: e.Heard,
			MaxRate: o.rate})
		if err != nil {
			t.Fatal(err)
		}
		e.Connect(receiver, sender)
		ends = append(ends, sender, receiver)
		if i == 1 {
			ends = append(ends, transfer.NewMux(listener, receiver))
			w.decode = e
		} else {
			w.prefill = e
		}
		running.Go(func() { e.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, end := range ends {
			_ = end.Close()
		}
	})
	return w
}

func (w *world) engine(i int) *Engine {
	o := w.options
	models := []Runner{w.models[i]}
	drafts := o.drafts
	if i == 0 && o.alone {
		drafts = nil
	}
	for _, m := range drafts {
		d := &fakeDraft{fakeModel: newFake(m.Pages, sight{}), t: w.t, main: w.models[i],
			window: m.Window, sinks: m.Sinks}
		w.drafts[i] = append(w.drafts[i], d)
		models = append(models, d)
	}
	s, err := scheduler.New(scheduler.Options{
		Limits: scheduler.Limits{MaxSeqs: o.seqs, TokenBudget: o.budget, MaxQueue: 1000},
		Pages:  o.pages, PageSize: pageSize, MaxModelLen: o.context, PrefixPages: -1,
		KVBytesPerToken: 8 * fakeLayers, Window: o.window, Sinks: o.sinks, Drafts: drafts,
	}, o.policies[i])
	if err != nil {
		w.t.Fatal(err)
	}
	return New(Options{Models: models, Scheduler: s, Context: o.context, MaxPending: 1000,
		QueueTimeout:       o.queueTimeout,
		Lease:              o.lease,
		RecomputeOnFailure: o.recompute, Vocabulary: fakeWords, Hidden: 1,
		Lost:  func(err error) bool { return errors.Is(err, errGone) },
		Watch: checker{w.t, s, &w.overtaken},
		Log:   slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
}

// heard is what was logged.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (h *heard) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(line)
}

// lines are those with all of some words.
func (h *heard) lines(words ...string) (found []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(h.text.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// checker verifies every invariant of the scheduler after each step.
type checker struct {
	t         *testing.T
	s         *scheduler.Scheduler
	overtaken *atomic.Int64
}

func (c checker) Step(Step) {
	if err := c.s.Check(); err != nil {
		c.t.Error(err)
	}
}
func (checker) Token(bool, time.Duration) {}

// Finished counts what the metrics do, which cannot go down.
func (c checker) Finished(f Finished) {
	if f.OutputTokens < 0 || f.PromptTokens < 0 {
		c.t.Errorf("%+v", f)
	}
}

func (c checker) Transfer(e transfer.Event) {
	if e.Kind == transfer.Overtaken {
		c.overtaken.Add(1)
	}
}

// rest waits until nothing is left of any request and checks that all pages are free or cached.
func (w *world) rest() {
	w.t.Helper()
	for _, e := range []*Engine{w.prefill, w.decode} {
		for {
			stats, leaked, err := e.Stats(w.t.Context())
			if err != nil {
				w.t.Fatal(err)
			}
			left := 0
			for _, n := range stats.States {
				left += n
			}
			if left > 0 || stats.Quarantined > 0 {
				continue // Each look is a turn of the loop; the test's own time limit bounds it.
			}
			if leaked != 0 || stats.Held != 0 || stats.Free+stats.Evictable != stats.Total {
				w.t.Fatalf("pages are not all free or cached: %+v, leaked %d", stats, leaked)
			}
			vectors, err := call(w.t.Context(), e, func() (int, error) { return e.vectors, nil })
			if err != nil || vectors != 0 {
				w.t.Fatalf("%d numbers of prompts that have gone are counted: %v", vectors, err)
			}
			break
		}
	}
}

// read takes a stream to its end.
func read(ctx context.Context, s generation.Stream) ([]int32, error) {
	var tokens []int32
	for {
		u, err := s.Next(ctx)
		tokens = append(tokens, u.Tokens...)
		if err != nil || u.Finish != "" {
			return tokens, err
		}
	}
}

// handOver drives one request through both engines.
func (w *world) handOver(ctx context.Context, ask generation.Request) ([]int32, error) {
	reserved, err := w.decode.PrepareReceive(ctx, ask, -1)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	begin := reserved.End
	if reserved.Matched < reserved.End {
		_, err = w.prefill.RemoteSend(ctx, ask, generation.Send{Begin: reserved.Matched,
			End: reserved.End, Metadata: reserved.Metadata})
		if err != nil {
			return nil, fmt.Errorf("send: %w", err)
		}
	}
	s, err := w.decode.StartGenerate(ctx, ask, begin)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	return read(ctx, s)
}
