package engine

import (
	"context"
	"testing"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// steadyModel gives the same rows at every run.
type steadyModel struct{ rows [][]float32 }

func (m *steadyModel) Run(b *batch.Batch) ([][]float32, error) {
	n := 0
	for i := range b.Items {
		n += b.Items[i].Logits
	}
	return m.rows[:n], nil
}

// TestStepAllocatesNothing: 16 sequences that decode greedily leave no garbage. What they
// keep grows with their output, their tokens and page tables, less than once a step.
func TestStepAllocatesNothing(t *testing.T) {
	const sequences, page, most = 16, 64, 1000
	s, err := scheduler.New(scheduler.Options{
		Limits: scheduler.Limits{MaxSeqs: sequences, TokenBudget: 256, MaxQueue: sequences},
		Pages:  2 * sequences * most / page, PageSize: page, MaxModelLen: most + page,
		PrefixPages: -1, KVBytesPerToken: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &steadyModel{}
	for range sequences {
		m.rows = append(m.rows, []float32{0, 1, 0, 0})
	}
	e := New(Options{Models: []Runner{m}, Scheduler: s, Context: most + page,
		MaxPending: 2 * sequences, Vocabulary: 4})
	stepper := NewStepper(e, nil, nil)
	var streams []generation.Stream
	for i := range sequences {
		stepper.Generate(generation.Request{Prompt: []int32{int32(i % 4), 1, 2},
			MaxTokens: most, IgnoreEOS: true}, func(s generation.Stream, err error) {
			if err != nil {
				t.Error(err)
			}
			streams = append(streams, s)
		})
	}
	got := 0
	step := func() {
		if !stepper.Hear() {
			t.Fatal("nothing to plan")
		}
		stepper.Plan()
		stepper.Compute()
		stepper.Conclude()
		for _, s := range streams {
			update, err := s.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			got += len(update.Tokens)
		}
	}
	for range 10 {
		step()
	}
	const runs = 300
	before := got
	n := testing.AllocsPerRun(runs, step)
	if got-before != (runs+1)*sequences {
		t.Fatalf("%d tokens in %d steps", got-before, runs+1)
	}
	if n >= 1 {
		t.Errorf("%v allocations a step", n)
	}
}
