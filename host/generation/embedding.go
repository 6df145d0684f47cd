package generation

import "slices"

// Placeholder stands in a prompt at the positions that come as vectors.
const Placeholder = int32(-1)

// Embedding is a part of a prompt that comes as vectors in place of tokens: what was embedded
// elsewhere and enters the model's first layer as it is. It is computed whole.
type Embedding struct {
	// Start is the position in the prompt of the first of Rows vectors.
	Start, Rows int
	// Values are the vectors, one after another, each as wide as the model's hidden state.
	Values []float32
	// Digest names Values and their shape.
	Digest [32]byte
	// File is the safetensors file that they came in, which goes to other instances as it is.
	File []byte
}

// End is the position after the last vector.
func (e *Embedding) End() int { return e.Start + e.Rows }

// Whole is a position of the prompt or, where that lies inside a part that is computed whole, the
// position that this part begins at. Windows of a prompt begin and end at whole positions.
func (r *Request) Whole(position int) int {
	for i := range r.Embeds {
		if e := &r.Embeds[i]; e.Start < position && position < e.End() {
			return e.Start
		}
	}
	return position
}

// SamePrompt reports whether two requests have equal tokens and equal vectors.
func (r *Request) SamePrompt(other *Request) bool {
	return slices.Equal(r.Prompt, other.Prompt) &&
		slices.EqualFunc(r.Embeds, other.Embeds, func(a, b Embedding) bool {
			return a.Start == b.Start && a.Rows == b.Rows && a.Digest == b.Digest
		})
}
