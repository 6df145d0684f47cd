// Package sample turns one row of logits into the next token. Chance comes from the seed and the
// number of the output token alone, so a sequence that was preempted, recomputed or handed to
// another instance goes on with the choices it would have made.
package sample

import (
	"fmt"
	"math"
	"slices"
)

// MaxLogitBias bounds the entries of Params.LogitBias.
const MaxLogitBias = 1024

// Params says how the tokens of one sequence are chosen. The zero value is greedy.
type Params struct {
	// Temperature divides the logits; 0 takes the most likely token, the lowest id of equals.
	Temperature float64
	// TopK keeps the k most likely tokens; 0 and -1 keep all.
	TopK int
	// TopP in (0, 1] keeps the fewest tokens, most likely first, that hold this share of the
	// probability that TopK left, the token that reaches it included. 0 and 1 keep all.
	TopP float64
	// MinP in [0, 1] drops tokens less likely than this share of the most likely one's probability.
	MinP float64
	// Seed decides every choice of the sequence.
	Seed uint64

	// RepetitionPenalty divides the positive and multiplies the negative logits of tokens that the
	// prompt or the output holds; 0 and 1 are off (Keskar et al., CTRL, 2019).
	RepetitionPenalty float64
	// FrequencyPenalty in [-2, 2] is subtracted once an occurrence in the output,
	// PresencePenalty in [-2, 2] once for each token the output holds.
	FrequencyPenalty, PresencePenalty float64
	// LogitBias in [-100, 100] is added to the logits of tokens. At most MaxLogitBias entries.
	LogitBias map[int32]float64
}

// Validate says which field is out of its range, by its name on the wire.
func (p *Params) Validate() error {
	if p.TopK < -1 {
		return fmt.Errorf("top_k is %d; it must be -1 or 0 (off) or at least 1", p.TopK)
	}
	for _, f := range []struct {
		name      string
		value     float64
		low, high float64
	}{
		{"temperature", p.Temperature, 0, math.MaxFloat32},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"repetition_penalty", p.RepetitionPenalty, 0, math.MaxFloat32},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2},
		{"presence_penalty", p.PresencePenalty, -2, 2},
	} {
		if !(f.value >= f.low && f.value <= f.high) {
			return fmt.Errorf("%s is %v; it must be from %v to %.4g",
				f.name, f.value, f.low, f.high)
		}
	}
	if len(p.LogitBias) > MaxLogitBias {
		return fmt.Errorf("logit_bias has %d entries; at most %d are allowed",
			len(p.LogitBias), MaxLogitBias)
	}
	for _, id := range p.biased() {
		if b := p.LogitBias[id]; id < 0 || !(b >= -100 && b <= 100) {
			return fmt.Errorf("logit_bias of token %d is %v; "+
				"ids are not negative, values from -100 to 100", id, b)
		}
	}
	return nil
}

// biased lists the tokens of LogitBias, ascending.
func (p *Params) biased() []int32 {
	ids := make([]int32, 0, len(p.LogitBias))
	for id := range p.LogitBias {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Adjusts reports whether Adjust would change logits. Where it does not, the sequence's tokens need
// not be at hand.
func (p *Params) Adjusts() bool {
	return p.repeats() || p.FrequencyPenalty != 0 || p.PresencePenalty != 0 || len(p.LogitBias) > 0
}

func (p *Params) repeats() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }
