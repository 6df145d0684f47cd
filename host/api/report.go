package api

import (
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/trace"
)

// reportOf is the report of an answer by its last piece.
func reportOf(p piece) openai.Phases {
	a, from, ms := p.answer, p.report, openai.Milliseconds
	return openai.Phases{
		Queue: ms(a.timing.Queue), Prefill: ms(a.timing.Prefill), Transfer: ms(from.Transfer),
		Tail: ms(a.timing.Transfer), Wait: ms(a.timing.Wait), First: ms(a.timing.First),
		TTFT: ms(a.ttft), Decode: ms(time.Since(a.arrived) - a.ttft), Prompt: len(a.ask.Prompt),
		Cached: from.Cached, Output: a.output, Chunks: from.Chunks, BytesSent: from.BytesSent,
		Policy: from.Policy,
	}
}

// split says how the time to an answer's first token was spent, by what the source reports of its
// part. At the front door the parts add up to it: what came before the source was asked is queue,
// and what the source cannot know, the way back, is the first token's. An instance that goes on
// from a hand-over tells only of its own part.
func (a *answer) split(from generation.Report) openai.Timing {
	t := openai.Timing{Queue: from.Queue, Prefill: from.Prefill, Transfer: from.Handoff,
		Wait: from.Wait, First: from.First}
	if !a.front {
		if t.Wait > 0 || t.First > 0 {
			t.Queue, t.Prefill = 0, 0
		}
		return t
	}
	t.Queue += a.begun.Sub(a.arrived)
	t.First = max(0, a.ttft-(t.Queue+t.Prefill+t.Transfer+t.Wait))
	return t
}

// timed tells how long tokens took, and at the first one how that time was spent.
func (s *Server) timed(x *exchange, p piece) {
	if len(p.tokens) == 0 {
		return
	}
	a := p.answer
	if !p.first {
		s.options.Watch.Timed(Timed{Front: a.front, Took: p.gap, Tokens: len(p.tokens)})
		return
	}
	if !x.timed {
		x.timed = true
		x.w.Header().Set(openai.HeaderTiming, a.timing.String()) // Nothing is written yet.
		if p.report.Policy != "" {
			x.w.Header().Set(openai.HeaderPolicy, p.report.Policy)
		}
	}
	s.options.Watch.Timed(Timed{Front: a.front, First: true, Took: a.ttft, Tokens: len(p.tokens),
		Timing: a.timing})
	if !a.front {
		return
	}
	at := a.arrived
	a.timing.Each(func(name string, took time.Duration) {
		if took > 0 {
			s.options.Ring.Add(trace.Event{Name: name, Track: a.ask.RequestID, At: at,
				Took: took})
		}
		at = at.Add(took)
	})
	x.span.Note("first token")
}

// closed puts an answer that has ended in the trace.
func (s *Server) closed(x *exchange, p piece, fault *openai.Error) {
	a := p.answer
	x.span.Set("gen_ai.usage.input_tokens", len(a.ask.Prompt))
	x.span.Set("gen_ai.usage.output_tokens", a.output)
	note := string(p.finish)
	if fault != nil {
		note = string(fault.Code)
	}
	x.span.Set("gen_ai.response.finish_reasons", note)
	if !a.front {
		return
	}
	if decode := time.Since(a.arrived) - a.ttft; a.output > 0 {
		s.options.Ring.Add(trace.Event{Name: "decode", Track: a.ask.RequestID,
			At: a.arrived.Add(a.ttft), Took: decode, Tokens: a.output})
	}
	s.options.Ring.Add(trace.Event{Name: "finished", Track: a.ask.RequestID, At: time.Now(),
		Note: note, Tokens: a.output})
}

// describe puts what a request asks for in its span.
func (x *exchange) describe(t *task) {
	p, operation := t.ask.Sampling, "text_completion"
	if _, chats := t.shape.(chatShape); chats {
		operation = "chat"
	}
	if t.front {
		x.span.Rename(operation + " " + t.model.Names[0])
	}
	for _, a := range []trace.Attr{
		{Key: "gen_ai.operation.name", Value: operation},
		{Key: "gen_ai.request.model", Value: t.model.Names[0]},
		{Key: "gen_ai.response.id", Value: t.id}, {Key: "engine.request.id", Value: x.id},
		{Key: "gen_ai.request.temperature", Value: p.Temperature},
		{Key: "gen_ai.request.top_p", Value: p.TopP}, {Key: "gen_ai.request.top_k", Value: p.TopK},
		{Key: "gen_ai.request.max_tokens", Value: t.ask.MaxTokens},
		{Key: "gen_ai.request.stream", Value: t.options.Stream},
	} {
		x.span.Set(a.Key, a.Value)
	}
}
