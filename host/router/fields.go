package router

import (
	"net/http"
	"strconv"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/trace"
)

// call is what the three calls have in common: every field of the request that bears on its tokens
// or on when they come.
func (f *forward) call() *openai.Call {
	p, h := f.ask.Sampling, f.ask.Hints
	seed := int64(p.Seed)
	c := &openai.Call{
		Prompt: f.written(), Emitted: len(f.emitted), User: f.name(),
		Temperature: &p.Temperature, TopK: &p.TopK,
		MinP: &p.MinP, Seed: &seed, MinTokens: f.ask.MinTokens, Priority: h.Priority,
		PredictedOutput: h.PredictedOutput,
		CallPenalties: openai.CallPenalties{PresencePenalty: p.PresencePenalty,
			FrequencyPenalty: p.FrequencyPenalty, RepetitionPenalty: p.RepetitionPenalty},
		DebugConfig: openai.DebugConfig{
			IgnoreEOS:          f.ask.IgnoreEOS,
			PinnedSystemPrompt: f.ask.PinPrompt && len(f.emitted) == 0},
	}
	if p.TopP > 0 {
		c.TopP = &p.TopP
	}
	if f.ask.MaxTokens > 0 {
		c.MaxTokens = &f.ask.MaxTokens
	}
	if f.ask.Logprobs {
		c.Logprobs = &f.ask.TopLogprobs
	}
	if len(p.LogitBias) > 0 {
		c.LogitBias = make(map[string]float64, len(p.LogitBias))
		for id, bias := range p.LogitBias {
			c.LogitBias[strconv.Itoa(int(id))] = bias
		}
	}
	return c
}

// written is the prompt on the wire, with the files of its vectors as they came.
func (f *forward) written() openai.CallPrompt {
	p := openai.CallPrompt{Tokens: f.prompt()}
	for _, e := range f.ask.Embeds {
		p.Vectors = append(p.Vectors,
			openai.CallVectors{Start: e.Start, Rows: e.Rows, File: e.File})
	}
	return p
}

// headers are the hints that no field carries. The deadline is what is left of it.
func (f *forward) headers(span *trace.Span) http.Header {
	hints, h := f.ask.Hints, http.Header{}
	if place := span.Context(); place != "" {
		h.Set(trace.Header, place)
	}
	h.Set(openai.HeaderReport, "1")
	if f.ask.RequestID != "" {
		h.Set("X-Request-Id", f.ask.RequestID) // One id in all logs and timelines.
	}
	if f.ask.RequestID != "" {
		h.Set("X-Request-Id", f.ask.RequestID)
	}
	if hints.Tenant != "" {
		h.Set("X-Tenant", hints.Tenant)
	}
	if hints.Deadline > 0 {
		left := max(hints.Deadline-time.Since(f.accepted), time.Millisecond)
		h.Set("X-Deadline-Ms", strconv.FormatInt(left.Milliseconds(), 10))
	}
	switch hints.Class {
	case generation.ClassInteractive:
		h.Set("X-Class", "interactive")
	case generation.ClassBatch:
		h.Set("X-Class", "batch")
	}
	if hints.Tag != 0 {
		h.Set("X-Policy-Tag", strconv.FormatUint(hints.Tag, 10))
	}
	if hints.Group != 0 {
		h.Set("X-Policy-Group", strconv.FormatUint(uint64(hints.Group), 10))
	}
	return h
}

// ranked takes the log-probabilities over, by the ids of their tokens.
func ranked(l *openai.CompletionLogprobs) []generation.Logprobs {
	if l == nil {
		return nil
	}
	var out []generation.Logprobs
	for _, place := range l.Ranked {
		var at generation.Logprobs
		for i, token := range place {
			if i == 0 {
				at.Chosen = generation.Logprob(token)
			} else {
				at.Top = append(at.Top, generation.Logprob(token))
			}
		}
		out = append(out, at)
	}
	return out
}
