package api

import (
	"strings"
	"unicode/utf8"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/tokenizer"
)

// tokenLogprobs are the log-probabilities at one place of a text, and where it is.
type tokenLogprobs struct {
	generation.Logprobs
	offset int // characters before it
}

// describe places the log-probabilities of the next token.
func (a *answer) describe(l generation.Logprobs) tokenLogprobs {
	at := tokenLogprobs{l, a.offset}
	a.offset += utf8.RuneCountInString(word(a.words, l.Chosen.ID))
	return at
}

// word is what a token adds to a text; U+FFFD stands for bytes that are no character.
func word(words *tokenizer.Tokenizer, id int32) string {
	return strings.ToValidUTF8(string(words.TokenBytes(id)), "\uFFFD")
}

// least is the log-probability of what cannot come: JSON has no infinity.
const least = -9999.0

func number(logprob float64) float64 {
	if logprob >= least {
		return logprob
	}
	return least
}

// logprobs are the log-probabilities of a completion; nil when there are none.
func (c completionShape) logprobs(list []tokenLogprobs) *openai.CompletionLogprobs {
	if len(list) == 0 {
		return nil
	}
	out := &openai.CompletionLogprobs{}
	for _, at := range list {
		out.Tokens = append(out.Tokens, word(c.words, at.Chosen.ID))
		out.TokenLogprobs = append(out.TokenLogprobs, number(at.Chosen.Logprob))
		out.TextOffset = append(out.TextOffset, at.offset)
		ranked := []openai.RankedToken{{ID: at.Chosen.ID, Logprob: number(at.Chosen.Logprob)}}
		top := map[string]float64{}
		for _, l := range at.Top {
			ranked = append(ranked, openai.RankedToken{ID: l.ID, Logprob: number(l.Logprob)})
			text := word(c.words, l.ID)
			if _, seen := top[text]; !seen { // The likelier one came first.
				top[text] = number(l.Logprob)
			}
		}
		if c.top > 0 {
			out.TopLogprobs = append(out.TopLogprobs, top)
		}
		if c.ids {
			out.Ranked = append(out.Ranked, ranked)
		}
	}
	return out
}

// logprobs are the log-probabilities of a chat's answer; nil when there are none.
func (c chatShape) logprobs(list []tokenLogprobs) *openai.ChatLogprobs {
	if len(list) == 0 {
		return nil
	}
	out := &openai.ChatLogprobs{}
	for _, at := range list {
		token := openai.TokenLogprob{TopLogprob: c.logprob(at.Chosen),
			TopLogprobs: []openai.TopLogprob{}}
		for _, l := range at.Top {
			token.TopLogprobs = append(token.TopLogprobs, c.logprob(l))
		}
		out.Content = append(out.Content, token)
	}
	return out
}

func (c chatShape) logprob(l sample.Logprob) openai.TopLogprob {
	bytes := c.words.TokenBytes(l.ID)
	top := openai.TopLogprob{Token: word(c.words, l.ID), Logprob: number(l.Logprob),
		Bytes: make([]int, len(bytes))}
	for i, b := range bytes {
		top.Bytes[i] = int(b)
	}
	return top
}
