package constrain

import (
	"math"
	"math/bits"
)

// State is one output on its way through a form. It serves one goroutine.
type State struct {
	form *Form
	at   *state
	text []float32 // room for the logits of the tokens that end an output
}

// New begins an output.
func (f *Form) New() *State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &State{form: f, at: f.start}
}

// Least is how many tokens are enough to end the output from here.
func (s *State) Least() int { return s.at.least }

// Mask sets the logits of tokens that may not come next to -Inf. At most left tokens may still
// come. end are the tokens that end an output: they are left alone where it may end here, and
// forbidden elsewhere.
func (s *State) Mask(logits []float32, left int, end []int32) {
	f := s.form
	f.mu.Lock()
	defer f.mu.Unlock()
	s.text = s.text[:0]
	for _, id := range end {
		if int(id) < len(logits) {
			s.text = append(s.text, logits[id])
		}
	}
	f.tidy()
	forbid(logits, f.mask(s.at, left-1))
	none := float32(math.Inf(-1))
	i := 0
	for _, id := range end {
		if int(id) >= len(logits) {
			continue
		}
		logits[id] = none
		if s.at.ends {
			logits[id] = s.text[i]
		}
		i++
	}
}

// mask is the set of tokens that may come at s when so many may follow them.
func (f *Form) mask(s *state, left int) []uint64 {
	if s.mask == nil {
		if other := f.alike(s); other != s {
			f.mask(other, unreachable)
			s.mask, s.most = other.mask, other.most
		}
	}
	if s.mask == nil {
		mask := make([]uint64, (f.words.size+63)/64)
		s.most = f.walk(s, unreachable, func(id int32) { mask[id>>6] |= 1 << (id & 63) })
		s.mask = mask
		f.masks += 8 * len(mask)
	}
	if left >= s.most {
		return s.mask
	}
	// Near the end each count has a mask of its own.
	mask := make([]uint64, len(s.mask))
	f.walk(s, left, func(id int32) { mask[id>>6] |= 1 << (id & 63) })
	return mask
}

// forbid sets the logits of all tokens outside a set to -Inf.
func forbid(logits []float32, mask []uint64) {
	none := float32(math.Inf(-1))
	for i, allowed := range mask {
		at := i << 6
		if at >= len(logits) {
			return
		}
		part := logits[at:min(at+64, len(logits))]
		if allowed == 0 {
			for k := range part {
				part[k] = none
			}
			continue
		}
		for gone := ^allowed; gone != 0; gone &= gone - 1 {
			if k := bits.TrailingZeros64(gone); k < len(part) {
				part[k] = none
			}
		}
	}
	for i := len(mask) << 6; i < len(logits); i++ {
		logits[i] = none
	}
}

// Accept notes the token that was chosen. It reports whether the output has ended: nothing can
// follow.
func (s *State) Accept(token int32) (ended bool) {
	f := s.form
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.words.text(token) {
		s.at = f.step(s.at, b)
	}
	return len(s.at.links) == 0
}

// tidy forgets when too much was learnt.
func (f *Form) tidy() {
	if len(f.states) > maxStates || f.masks > maxMaskBytes {
		f.forget()
	}
}
