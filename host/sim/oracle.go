package sim

import (
	"math"
	"slices"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
)

// text is a run of inputs and what they must leave in the KV cache, made from them alone.
type text struct {
	shape
	codes   []uint64
	entries [][]entry // [layer][position]
}

func newText(s shape) *text { return &text{shape: s, entries: make([][]entry, s.Layers)} }

// extend cuts the text to so many inputs and appends others.
func (t *text) extend(keep int, codes []uint64) {
	t.codes = append(t.codes[:keep], codes...)
	for layer, entries := range t.entries {
		entries = entries[:keep]
		for at := keep; at < len(t.codes); at++ {
			read := func(i int) entry { return entries[i] }
			entries = append(entries, t.entryAt(layer, at, t.codes[at], read))
		}
		t.entries[layer] = entries
	}
}

// promptCodes are the inputs of a prompt.
func promptCodes(ask *generation.Request) []uint64 {
	codes := make([]uint64, len(ask.Prompt))
	for at, token := range ask.Prompt {
		codes[at] = codeOf(token)
	}
	for i := range ask.Embeds {
		e := &ask.Embeds[i]
		for row := range e.Rows {
			codes[e.Start+row] = codeOfVector(e.Values, row)
		}
	}
	return codes
}

// eos is the token that ends an output.
const eos = 0

// answer is what one engine alone, without batches, pages and transfers, makes of a request.
type answer struct {
	tokens   []int32
	finish   generation.Finish
	logprobs []sample.Logprob // of the tokens
	formed   bool             // the form has ended with the last token
}

// oracle computes the answer of a request whose context holds so many tokens; its constraint must
// be a fresh one.
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
	t.extend(0, promptCodes(&ask))
	row := make([]float32, vocabulary)
	a := answer{finish: generation.FinishLength}
	for len(a.tokens) < most {
		s.row(row, len(t.codes)-1, func(layer, i int) entry { return t.entries[layer][i] })
		plain := slices.Clone(row)
		if ask.Sampling.Adjusts() {
			sampler.Adjust(row, ask.Prompt, a.tokens)
		}
		switch {
		case ask.Constraint != nil:
			ask.Constraint.Mask(row, most-len(a.tokens), []int32{eos})
		case len(a.tokens) < ask.MinTokens:
			row[eos] = float32(math.Inf(-1))
		}
		token, err := sampler.Pick(row, len(a.tokens))
		if err != nil {
			broken("oracle: %v", err)
		}
		if token == eos && (!ask.IgnoreEOS || ask.Constraint != nil) {
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
		t.extend(len(t.codes), []uint64{codeOf(token)})
		if ask.Constraint != nil && ask.Constraint.Accept(token) {
			a.finish, a.formed = generation.FinishStop, true
			break
		}
	}
	return a
}
