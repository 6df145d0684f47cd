package engine

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/scheduler"
)

// parity lets tokens of alternating parity come, and ends after so many.
type parity struct{ taken, most int }

func (p *parity) Least() int { return p.most - p.taken }

func (p *parity) Mask(logits []float32, _ int, end []int32) {
	for i := range logits {
		if i%2 != p.taken%2 || slices.Contains(end, int32(i)) {
			logits[i] = float32(math.Inf(-1))
		}
	}
}

func (p *parity) Accept(int32) bool {
	p.taken++
	return p.taken == p.most
}

// output is everything that a reader gets.
type output struct {
	tokens   []int32
	logprobs []generation.Logprobs
	finish   generation.Finish
}

func readAll(ctx context.Context, s generation.Stream) (o output, err error) {
	for {
		u, err := s.Next(ctx)
		o.tokens = append(o.tokens, u.Tokens...)
		o.logprobs = append(o.logprobs, u.Logprobs...)
		if err != nil || u.Finish != "" {
			o.finish = u.Finish
			return o, err
		}
	}
}

// adjusted asks for all that bears on the choice of tokens. Every other request is constrained.
func adjusted(n int) generation.Request {
	r := generation.Request{
		ID: fmt.Sprint("id", n), Prompt: prompt(5+n%30, uint64(n)), MaxTokens: 20, Logprobs: true,
		TopLogprobs: 3, MinTokens: n % 7,
		Sampling: sample.Params{Temperature: 0.7, Seed: uint64(n), MinP: 0.01,
			RepetitionPenalty: 1.3, FrequencyPenalty: 0.4, PresencePenalty: -0.2,
			LogitBias: map[int32]float64{int32(n % fakeWords): 0.5}},
	}
	if n%2 == 0 {
		r.Constraint = &parity{most: 3 + n%9}
	}
	return r
}

// TestSamplingIsTheSameEverywhere compares requests alone, side by side on engines too small for
// them, and handed over: tokens, log-probabilities and reasons must be equal.
func TestSamplingIsTheSameEverywhere(t *testing.T) {
	const requests = 24
	quiet, crowded := newWorld(t, small()), newWorld(t, worldOptions{pages: 24, seqs: 4, budget: 16,
		context: 80, recompute: true})
	var wait sync.WaitGroup
	for n := range requests {
		s, err := quiet.decode.Generate(t.Context(), adjusted(n))
		if err != nil {
			t.Fatal(err)
		}
		want, err := readAll(t.Context(), s)
		if err != nil || len(want.logprobs) != len(want.tokens) {
			t.Fatalf("request %d: %+v, %v", n, want, err)
		}
		if n%2 == 0 && (len(want.tokens) != 3+n%9 || want.finish != generation.FinishStop) {
			t.Errorf("request %d: %d tokens, %s", n, len(want.tokens), want.finish)
		}
		wait.Go(func() {
			s, err := crowded.decode.Generate(t.Context(), adjusted(n))
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := readAll(t.Context(), s); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("request %d in a crowd: %+v, %v; want %+v", n, got, err, want)
			}
			got, err := crowded.handOver(t.Context(), adjusted(n))
			if err != nil || !slices.Equal(got, want.tokens) {
				t.Errorf("request %d handed over: %v, %v; want %v", n, got, err, want.tokens)
			}
		})
	}
	wait.Wait()
	crowded.rest()
}

func TestMinTokensKeepsEOSAway(t *testing.T) {
	w := newWorld(t, small())
	ask := generation.Request{Prompt: prompt(9, 3), MaxTokens: 30}
	free := oracle(ask.Prompt, 1)
	w.decode.options.EOS = free // The first token would end it.
	for _, least := range []int{0, 5} {
		ask.MinTokens = least
		s, err := w.decode.Generate(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t.Context(), s)
		if err != nil || len(got.tokens) < least || least == 0 && len(got.tokens) > 0 ||
			slices.Contains(got.tokens, free[0]) {
			t.Errorf("min_tokens %d: %+v, %v", least, got, err)
		}
	}
}

func TestAFormThatDoesNotFitIsRefused(t *testing.T) {
	w := newWorld(t, small())
	for _, ask := range []generation.Request{
		{Prompt: prompt(9, 3), MaxTokens: 4, Constraint: &parity{most: 5}},
		{Prompt: prompt(9, 3), Logprobs: true, TopLogprobs: 21},
	} {
		_, err := w.decode.Generate(t.Context(), ask)
		if e := generation.AsError(err); e == nil || e.Code != generation.CodeInvalidValue ||
			e.Param == "" {
			t.Errorf("%v", err)
		}
	}
}

// observer is a policy that keeps the records it is shown and decides nothing itself.
type observer struct {
	scheduler.FCFS
	records []abi.Record
}

func (o *observer) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	for _, r := range v.Records {
		if r.State&abi.StateLive != 0 {
			o.records = append(o.records, r)
		}
	}
	return o.FCFS.Decide(v, out)
}

func TestHintsReachTheRecord(t *testing.T) {
	policy := &observer{}
	s, err := scheduler.New(scheduler.Options{
		Limits: scheduler.Limits{MaxSeqs: 4, TokenBudget: 16, MaxQueue: 10}, Pages: 40,
		PageSize: pageSize, MaxModelLen: 80, PrefixPages: -1, KVBytesPerToken: 8,
	}, policy)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{
		Models: []Runner{newFake(40, sight{})}, Scheduler: s, Context: 80, MaxPending: 10,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	for _, tenant := range []string{"blue", "", "red", "blue", "default"} {
		stream, err := e.Generate(ctx, generation.Request{Prompt: prompt(3, 1), MaxTokens: 1,
			Hints: generation.Hints{Priority: -7, Deadline: time.Hour, Tenant: tenant,
				Class: generation.ClassBatch, PredictedOutput: 12, Tag: 99}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(ctx, stream); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	running.Wait()
	var tenants []uint32
	for _, r := range policy.records {
		if r.Priority != -7 || r.DeadlineNS != r.ArrivalNS+int64(time.Hour) ||
			r.Class != abi.ClassBatch || r.PredictedOutput != 12 || r.UserTag != 99 {
			t.Errorf("%+v", r)
		}
		tenants = append(tenants, r.Tenant)
	}
	if want := []uint32{1, 0, 2, 1, 0}; !slices.Equal(slices.Compact(tenants), want) {
		t.Errorf("tenants %v, want %v", tenants, want)
	}
}

func TestTenantsAreBounded(t *testing.T) {
	all := newTenants()
	for i := range 3 * maxTenants {
		if n := all.index(fmt.Sprint(i)); n != uint32(min(i+1, maxTenants)) {
			t.Fatalf("tenant %d has number %d", i, n)
		}
	}
	if len(all.numbers) > maxTenants+2 {
		t.Errorf("%d names are kept", len(all.numbers))
	}
}
