package api

import (
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// reason is a finish reason on the wire: null while there is none.
func reason(f generation.Finish) *string {
	if f == "" {
		return nil
	}
	text := string(f)
	return &text
}

// completionShape is the form of /v1/completions. ids adds the tokens of each text, top is how many
// of the likeliest tokens were asked for.
type completionShape struct {
	ids   bool
	top   int
	words *tokenizer.Tokenizer
}

func (c completionShape) choice(index int, w whole) openai.CompletionChoice {
	choice := openai.CompletionChoice{Index: index, Text: w.text, FinishReason: reason(w.finish),
		Logprobs: c.logprobs(w.logprobs)}
	if c.ids {
		choice.TokenIDs = w.tokens
	}
	return choice
}

func (c completionShape) response(h header, choices []openai.CompletionChoice, u openai.UsageField,
) openai.CompletionResponse {
	return openai.CompletionResponse{
		ID: h.id, Object: openai.ObjectCompletion, Created: h.created, Model: h.model,
		SystemFingerprint: h.fingerprint, Choices: choices, Usage: u,
	}
}

func (c completionShape) opening(header, int, openai.UsageField) any { return nil }

func (c completionShape) chunk(h header, p piece, u openai.UsageField) any {
	choice := c.choice(p.answer.index, whole{
		text: p.text, tokens: p.tokens, logprobs: p.logprobs, finish: p.finish})
	return c.response(h, []openai.CompletionChoice{choice}, u)
}

func (c completionShape) summary(h header, u openai.UsageField) any {
	return c.response(h, []openai.CompletionChoice{}, u)
}

func (c completionShape) whole(h header, texts []whole, u openai.Usage) any {
	choices := make([]openai.CompletionChoice, len(texts))
	for i, t := range texts {
		choices[i] = c.choice(i, t)
	}
	return c.response(h, choices, openai.ShowUsage(&u))
}

// chatShape is the form of /v1/chat/completions.
type chatShape struct {
	ids   bool
	words *tokenizer.Tokenizer
}

func (c chatShape) event(h header, choices []openai.ChatChunkChoice, u openai.UsageField) any {
	return openai.ChatChunk{
		ID: h.id, Object: openai.ObjectChatChunk, Created: h.created, Model: h.model,
		SystemFingerprint: h.fingerprint, Choices: choices, Usage: u,
	}
}

func (c chatShape) opening(h header, index int, u openai.UsageField) any {
	empty := ""
	delta := openai.Delta{Role: "assistant", Content: &empty}
	return c.event(h, []openai.ChatChunkChoice{{Index: index, Delta: delta}}, u)
}

func (c chatShape) chunk(h header, p piece, u openai.UsageField) any {
	choice := openai.ChatChunkChoice{Index: p.answer.index, FinishReason: reason(p.finish),
		Logprobs: c.logprobs(p.logprobs)}
	if p.finish == "" && (p.text != "" || len(p.calls) == 0) {
		choice.Delta.Content = &p.text
	}
	choice.Delta.ToolCalls = p.calls
	if c.ids {
		choice.TokenIDs = p.tokens
	}
	return c.event(h, []openai.ChatChunkChoice{choice}, u)
}

func (c chatShape) summary(h header, u openai.UsageField) any {
	return c.event(h, []openai.ChatChunkChoice{}, u)
}

func (c chatShape) whole(h header, texts []whole, u openai.Usage) any {
	r := openai.ChatResponse{
		ID: h.id, Object: openai.ObjectChat, Created: h.created, Model: h.model,
		SystemFingerprint: h.fingerprint, Usage: openai.ShowUsage(&u),
	}
	for i, t := range texts {
		choice := openai.ChatChoice{Index: i, FinishReason: reason(t.finish),
			Logprobs: c.logprobs(t.logprobs),
			Message: openai.ReplyMessage{Role: "assistant", Content: t.text,
				ToolCalls: t.calls}}
		if c.ids {
			choice.TokenIDs = t.tokens
		}
		r.Choices = append(r.Choices, choice)
	}
	return r
}
