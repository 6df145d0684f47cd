package sample

import (
	"fmt"
	"math"
)

// MaxTopLogprobs bounds how many alternatives Logprobs lists.
const MaxTopLogprobs = 20

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	ID      int32
	Logprob float64
}

// Logprobs returns the log-probability of the chosen token under logits [vocabulary] as the model
// gave them, and the top most likely tokens, most likely first.
func Logprobs(logits []float32, chosen int32, top int) (Logprob, []Logprob, error) {
	if top < 0 || top > MaxTopLogprobs {
		return Logprob{}, nil, fmt.Errorf("top_logprobs is %d; it must be from 0 to %d",
			top, MaxTopLogprobs)
	}
	if chosen < 0 || int(chosen) >= len(logits) {
		return Logprob{}, nil, fmt.Errorf("token %d is outside the vocabulary of %d",
			chosen, len(logits))
	}
	best, err := most(logits)
	if err != nil {
		return Logprob{}, nil, fmt.Errorf("logprobs: %w", err)
	}
	sum := 0.0
	for _, l := range logits {
		sum += exp(float64(l) - float64(best.logit))
	}
	whole := float64(best.logit) + math.Log(sum)
	of := func(id int32) Logprob { return Logprob{ID: id, Logprob: float64(logits[id]) - whole} }

	h := topK(nil, logits, top)
	list := make([]Logprob, 0, len(h))
	for heapify(h, candidate.before); len(h) > 0; sink(h, 0, candidate.before) {
		list = append(list, of(h[0].id))
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
	}
	return of(chosen), list, nil
}
