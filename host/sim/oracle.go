package sim

import (
	"slices"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
)

// text is tokens and what they must leave in the KV cache, made from the tokens alone.
type text struct {
	shape
	tokens  []int32
	entries [][]entry // [layer][position]
}

func newText(s shape) *text { return &text{shape: s, entries: make([][]entry, s.Layers)} }

// extend cuts the text to so many tokens and appends others.
func (t *text) extend(keep int, tokens []int32) {
	t.tokens = append(t.tokens[:keep], tokens...)
	for layer, entries := range t.entries {
		entries = entries[:keep]
		for at := keep; at < len(t.tokens); at++ {
			read := func(i int) entry { return entries[i] }
			entries = append(entries, t.entryAt(layer, at, t.tokens[at], read))
		}
		t.entries[layer] = entries
	}
}

// eos is the token that ends an output.
const eos = 0

// answer is what one engine alone, without batches, pages and transfers, makes of a request.
type answer struct {
	tokens   []int32
	finish   generation.Finish
	logprobs []sample.Logprob // of the tokens
}

// oracle computes the answer of a request whose context holds so many tokens.
func (s shape) oracle(ask generation.Request, context int) answer {
	most := context - len(ask.Prompt)
	if ask.MaxTokens > 0 {
		most = min(most, ask.MaxTokens)
	}
	sampler, err := sample.New(ask.Sampling)
	if err != nil {
		broken("oracle: %v", err)
	}
	t := newText(s)
	t.extend(0, ask.Prompt)
	row := make([]float32, vocabulary)
	a := answer{finish: generation.FinishLength}
	for len(a.tokens) < most {
		s.row(row, len(t.tokens)-1, func(layer, i int) entry { return t.entries[layer][i] })
		plain := slices.Clone(row)
		if ask.Sampling.Adjusts() {
			sampler.Adjust(row, ask.Prompt, a.tokens)
		}
		token, err := sampler.Pick(row, len(a.tokens))
		if err != nil {
			broken("oracle: %v", err)
		}
		if token == eos && !ask.IgnoreEOS {
			a.finish = generation.FinishStop
			break
		}
		if ask.Logprobs {
			chosen, _, err := sample.Logprobs(plain, token, 0)
			if err != nil {
				broken("oracle: %v", err)
			}
			a.logprobs = append(a.logprobs, chosen)
		}
		a.tokens = append(a.tokens, token)
		t.extend(len(t.tokens), []int32{token})
	}
	return a
}
