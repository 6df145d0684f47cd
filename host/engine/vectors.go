package engine

import (
	"fmt"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
)

// maxVectors bounds the numbers in the vectors of all prompts that are here at once: 1 GiB.
const maxVectors = 256 << 20

// checkVectors refuses parts of a prompt that are not vectors of the model's width, one part after
// another, and more of them than there is room for.
func (e *Engine) checkVectors(ask *generation.Request) error {
	bad := func(format string, args ...any) error {
		return &generation.Error{Code: generation.CodeInvalidValue, Param: "prompt_embeds",
			Message: fmt.Sprintf(format, args...)}
	}
	if len(ask.Embeds) > 0 && e.options.Hidden == 0 {
		return bad("this engine takes no vectors in place of tokens: its models are of " +
			"different widths")
	}
	end, numbers := 0, 0
	for i := range ask.Embeds {
		part := &ask.Embeds[i]
		if part.Start < end || part.Rows < 1 || part.Rows > len(ask.Prompt)-part.Start ||
			len(part.Values) != part.Rows*e.options.Hidden {
			return bad("prompt_embeds %d: %d vectors of %d numbers in all at position %d; the "+
				"model's hidden state has %d", i, part.Rows, len(part.Values), part.Start,
				e.options.Hidden)
		}
		end = part.End()
		numbers += len(part.Values)
	}
	if e.vectors+numbers > maxVectors {
		return generation.Errorf(generation.CodeQueueFull, "the vectors of other prompts leave no "+
			"room for %d numbers, of %d in all; try again later", numbers, maxVectors)
	}
	return nil
}

// vectors is how many numbers the vectors of a request's prompt have.
func (r *request) vectors() (numbers int) {
	for i := range r.ask.Embeds {
		numbers += len(r.ask.Embeds[i].Values)
	}
	return numbers
}

// items are the parts of a prompt in the words of a batch.
func items(parts []generation.Embedding) []batch.Embedding {
	if len(parts) == 0 {
		return nil
	}
	out := make([]batch.Embedding, len(parts))
	for i, p := range parts {
		out[i] = batch.Embedding{Start: p.Start, Rows: p.Rows, Values: p.Values, Digest: p.Digest}
	}
	return out
}

// withoutFiles drops what the parts of a prompt came in: it is for those who pass them on.
func withoutFiles(ask generation.Request) generation.Request {
	if len(ask.Embeds) > 0 {
		ask.Embeds = append([]generation.Embedding{}, ask.Embeds...)
		for i := range ask.Embeds {
			ask.Embeds[i].File = nil
		}
	}
	return ask
}
