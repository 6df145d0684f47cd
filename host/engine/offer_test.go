package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// keeper is a model that keeps rows to itself where their choosers are content with the best. Its
// logits have many equals, and depend on nothing but the place and the token before.
type keeper struct {
	offers      bool
	kept, given int // rows
}

const keeperWords = 700

func (k *keeper) logits(item *batch.Item) []float32 {
	last := len(item.Tokens) - 1
	r := rand.New(rand.NewPCG(uint64(item.Start+last), uint64(item.Tokens[last])))
	row := make([]float32, keeperWords)
	for i := range row {
		row[i] = float32(math.Round(8*r.NormFloat64())) / 4
	}
	return row
}

// Run implements Runner.
func (k *keeper) Run(b *batch.Batch) (rows [][]float32, err error) {
	for i := range b.Items {
		item := &b.Items[i]
		if item.Logits == 0 {
			continue
		}
		row := k.logits(item)
		if k.offers && item.Chooser != nil && k.offer(item.Chooser, row) {
			row = nil
			k.kept++
		} else {
			k.given++
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (k *keeper) offer(c batch.Chooser, row []float32) bool {
	looks, temperature := c.Looks()
	if looks == 0 {
		return false
	}
	ids := make([]int32, len(row))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	best := batch.Best{IDs: ids[:looks], Vocabulary: len(row), SumError: 1e-4}
	for _, id := range ids {
		best.Sum += math.Exp(float64(row[id]-row[ids[0]]) / float64(temperature))
	}
	if looks > 1 {
		for _, id := range best.IDs {
			best.Logits = append(best.Logits, row[id])
		}
	}
	return c.Choose(best)
}

// engineOf runs an engine of one model until the test ends.
func engineOf(t *testing.T, m Runner, log *slog.Logger) *Engine {
	t.Helper()
	s, err := scheduler.New(scheduler.Options{
		Limits: scheduler.Limits{MaxSeqs: 7, TokenBudget: 32, MaxQueue: 100}, Pages: 200,
		PageSize: pageSize, MaxModelLen: 80, PrefixPages: -1, KVBytesPerToken: 8}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Models: []Runner{m}, Scheduler: s, Context: 80, MaxPending: 100,
		Vocabulary: keeperWords, EOS: []int32{11}, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return e
}

// choices are requests with every setting that decides where a token may be chosen.
func choices(n int) generation.Request {
	r := generation.Request{ID: fmt.Sprint(n), Prompt: []int32{int32(n), 2, 3}, MaxTokens: 30}
	p := &r.Sampling
	p.Seed = uint64(n)
	switch n % 9 {
	case 0: // Greedy.
	case 1:
		p.Temperature, p.TopK = 0.8, 40
	case 2:
		p.Temperature, p.TopP = 0.7, 0.9
	case 3:
		p.Temperature, p.MinP = 1, 0.2
	case 4:
		p.Temperature, p.TopK, p.TopP, p.MinP = 1.1, 100, 0.8, 0.05
	case 5:
		p.Temperature = 1 // All logits are needed.
	case 6:
		p.Temperature, p.TopP, p.PresencePenalty = 0.7, 0.9, 0.5
	case 7:
		r.Logprobs, r.TopLogprobs, r.MinTokens = true, 2, 9
	case 8:
		r.MinTokens, r.Constraint = 3, &parity{most: 12}
	}
	return r
}

// TestChoiceWithinThePass: a model that offers the best of its rows and keeps the rest gives the
// outputs of one that hands over all of them. Where the engine is to note the bits of rows, all of
// them come.
func TestChoiceWithinThePass(t *testing.T) {
	plain, keeping, noted := &keeper{}, &keeper{offers: true}, &keeper{offers: true}
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	engines := []*Engine{engineOf(t, plain, nil), engineOf(t, keeping, nil),
		engineOf(t, noted, log)}
	for n := range 45 {
		var want output
		for i, e := range engines {
			s, err := e.Generate(t.Context(), choices(n))
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("request %d, engine %d: %+v, want %+v", n, i, got, want)
			}
		}
	}
	if keeping.kept < keeping.given/2 || keeping.given == 0 || plain.kept+noted.kept > 0 {
		t.Errorf("%d rows were kept and %d given; without choosers %d, with notes %d",
			keeping.kept, keeping.given, plain.kept, noted.kept)
	}
	t.Logf("%d rows kept, %d given", keeping.kept, keeping.given)
}

// TestWhoMayChooseWithinThePass: nobody whose logits change before the choice.
func TestWhoMayChooseWithinThePass(t *testing.T) {
	for n, want := range map[int]bool{0: true, 1: true, 2: true, 5: true, 6: false, 7: false,
		8: false} {
		s, err := newSampler(choices(n), 99)
		if err != nil {
			t.Fatal(err)
		}
		e := &Engine{options: Options{Log: slog.New(slog.DiscardHandler)},
			requests: map[scheduler.SequenceID]*request{}}
		r := &request{id: 1, ask: choices(n), sampler: s}
		e.requests[1] = r
		plan := scheduler.Plan{Samples: []scheduler.SequenceID{1}}
		plan.Batch.Items = []batch.Item{{}, {Logits: 1}}
		e.offer(&plan)
		if got := plan.Batch.Items[1].Chooser != nil; got != want ||
			plan.Batch.Items[0].Chooser != nil {
			t.Errorf("request %d chooses within the pass: %v, want %v", n, got, want)
		}
	}
}
