package sim

import (
	"math"
	"slices"
)

// form is a constraint on outputs that depends on all tokens so far: of the tokens that leave one
// rest when divided by three none may come next, and one token ends the output.
type form struct{ rest int32 }

// formEnds is the token that ends an output that has a form.
const formEnds = 11

// Least implements generation.Constraint: an output may end anywhere.
func (f *form) Least() int { return 0 }

// Mask implements generation.Constraint.
func (f *form) Mask(logits []float32, _ int, end []int32) {
	for id := range logits {
		if int32(id)%3 == f.rest && !slices.Contains(end, int32(id)) {
			logits[id] = float32(math.Inf(-1))
		}
	}
}

// Accept implements generation.Constraint.
func (f *form) Accept(token int32) (ended bool) {
	f.rest = (f.rest + token) % 3
	return token == formEnds
}
