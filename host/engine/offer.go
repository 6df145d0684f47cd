package engine

import (
	"context"
	"log/slog"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/scheduler"
)

// offer lets the requests of a step choose within the pass whose choice depends on their logits and
// on chance alone: a device then keeps the rows. Debug lines name the bits of every row, which must
// come here for that.
func (e *Engine) offer(plan *scheduler.Plan) {
	if e.options.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	next := 0
	for i := range plan.Batch.Items {
		item := &plan.Batch.Items[i]
		if item.Logits == 0 {
			continue
		}
		r := e.requests[plan.Samples[next]]
		next++
		if !r.ask.Logprobs && !e.changes(r) {
			item.Chooser = r
		}
	}
}

// Looks implements batch.Chooser.
func (r *request) Looks() (best int, temperature float32) {
	p := r.sampler.Params()
	return p.Candidates(), float32(p.Temperature)
}

// Choose implements batch.Chooser.
func (r *request) Choose(b batch.Best) (chosen bool) {
	if b.Logits == nil { // Of one there is nothing else to know, and it looks at no more.
		r.picked = b.IDs[0]
		return true
	}
	r.picked, chosen = r.sampler.PickFrom(sample.Candidates{IDs: b.IDs, Logits: b.Logits,
		Vocabulary: b.Vocabulary, Sum: b.Sum, SumError: b.SumError}, r.generated)
	return chosen
}
