package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/scheduler"
)

// newSampler checks what a request says about the choice of its tokens, of which at most so many
// may come.
func newSampler(ask generation.Request, most int) (*sample.Sampler, error) {
	bad := func(param, format string, args ...any) error {
		return &generation.Error{Code: generation.CodeInvalidValue, Param: param,
			Message: fmt.Sprintf(format, args...)}
	}
	sampler, err := sample.New(ask.Sampling)
	switch c := ask.Constraint; {
	case err != nil:
		return nil, bad("", "%v", err)
	case ask.TopLogprobs < 0 || ask.TopLogprobs > sample.MaxTopLogprobs:
		return nil, bad("top_logprobs", "top_logprobs is %d; it must be from 0 to %d",
			ask.TopLogprobs, sample.MaxTopLogprobs)
	case c != nil && c.Least() > most:
		return nil, bad("max_tokens", "the shortest output that fits the asked form may need %d "+
			"tokens, and at most %d may come", c.Least(), most)
	}
	return sampler, nil
}

// checkEmitted checks how much of a prompt is output already.
func checkEmitted(ask generation.Request) error {
	bad := func(format string, args ...any) error {
		return &generation.Error{Code: generation.CodeInvalidValue, Param: "emitted_tokens",
			Message: fmt.Sprintf(format, args...)}
	}
	switch n := ask.Emitted; {
	case n < 0 || n >= len(ask.Prompt):
		return bad("emitted_tokens is %d of %d prompt tokens; at least one was there before any "+
			"output", n, len(ask.Prompt))
	case n > 0 && len(ask.Embeds) > 0 &&
		ask.Embeds[len(ask.Embeds)-1].End() > len(ask.Prompt)-n:
		return bad("emitted_tokens is %d, but the last %d positions of the prompt hold vectors, "+
			"which are no output", n, n)
	case ask.MaxTokens > 0 && n >= ask.MaxTokens:
		return bad("emitted_tokens is %d and max_tokens %d: nothing may follow", n, ask.MaxTokens)
	}
	return nil
}

// prepareChoice makes what chooses the request's tokens, and leads it past the output that came
// from another instance.
func (r *request) prepareChoice() (err error) {
	emitted := r.ask.Prompt[len(r.ask.Prompt)-r.ask.Emitted:]
	if len(emitted) > 0 && r.reserves() {
		return nil // Its start does it, with a form of its own.
	}
	if form := r.ask.Constraint; form != nil {
		for _, token := range emitted {
			if form.Accept(token) {
				return &generation.Error{Code: generation.CodeInvalidValue,
					Param: "emitted_tokens", Message: "the output has ended in the asked form " +
						"already: nothing may follow"}
			}
		}
	}
	r.output = nil
	if r.ask.Sampling.Adjusts() {
		r.output = slices.Clone(emitted)
	}
	r.sampler, err = newSampler(r.ask, r.max-r.ask.Emitted)
	return err
}

// reserves reports whether somebody has to start the request before it generates.
func (r *request) reserves() bool {
	return r.kind == scheduler.PrepareReceive && !r.started
}

// prompt is what the client asked for, without the output that came from another instance.
func (r *request) prompt() []int32 { return r.ask.Prompt[:len(r.ask.Prompt)-r.ask.Emitted] }

// outcome is what sampling did for one sequence.
type outcome struct {
	request  *request
	token    int32
	logprobs *generation.Logprobs // nil unless asked for
	finish   generation.Finish    // "" goes on
	err      error
	emit     bool // the token is part of the output
}

func (o *outcome) ended() bool { return o.finish != "" || o.err != nil }

func (o *outcome) reason() scheduler.Reason {
	switch {
	case o.err != nil:
		return scheduler.ReasonError
	case o.finish == generation.FinishLength:
		return scheduler.ReasonLength
	}
	return scheduler.ReasonStop
}

// sample chooses the next token of a sequence and says whether it was the last. It changes logits.
func (e *Engine) sample(r *request, logits []float32) outcome {
	out := outcome{request: r}
	raw := logits
	if r.ask.Logprobs && e.changes(r) {
		e.raw = append(e.raw[:0], logits...)
		raw = e.raw
	}
	if logits == nil {
		out.token = r.picked
	} else {
		e.restrict(r, logits)
		out.token, out.err = r.sampler.Pick(logits, r.generated)
	}
	if out.err != nil {
		return out
	}
	form := r.ask.Constraint
	if (!r.ask.IgnoreEOS || form != nil) && slices.Contains(e.options.EOS, out.token) {
		out.finish = generation.FinishStop
		return out
	}
	if r.ask.Logprobs {
		var at generation.Logprobs
		at.Chosen, at.Top, out.err = sample.Logprobs(raw, out.token, r.ask.TopLogprobs)
		if out.err != nil {
			return out
		}
		out.logprobs = &at
	}
	out.emit = true
	r.generated++
	if r.ask.Sampling.Adjusts() {
		r.output = append(r.output, out.token)
	}
	switch {
	case form != nil && form.Accept(out.token):
		out.finish = generation.FinishStop
	case r.generated >= r.max:
		out.finish = generation.FinishLength
	}
	return out
}

// changes reports whether restrict changes logits.
func (e *Engine) changes(r *request) bool {
	return r.ask.Sampling.Adjusts() || r.ask.Constraint != nil || r.generated < r.ask.MinTokens
}

// restrict applies all that bears on the choice but chance itself: penalties and biases, then what
// may not come at all. A constraint knows itself when the output may end; min_tokens adds nothing.
func (e *Engine) restrict(r *request, logits []float32) {
	if r.ask.Sampling.Adjusts() {
		r.sampler.Adjust(logits, r.prompt(), r.output)
	}
	if form := r.ask.Constraint; form != nil {
		form.Mask(logits, r.max-r.generated, e.options.EOS)
		return
	}
	if r.generated >= r.ask.MinTokens {
		return
	}
	for _, id := range e.options.EOS {
		if int(id) < len(logits) {
			logits[id] = float32(math.Inf(-1))
		}
	}
}
