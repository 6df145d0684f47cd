package sample

import (
	"fmt"
	"math"
)

// Sampler chooses the tokens of one sequence. It keeps room for its work, but no state: the same
// arguments give the same token at any time, on any instance. It serves one caller at a time.
type Sampler struct {
	params Params
	heap   []candidate
	seen   map[int32]int
	biased []int32
}

// candidate is a token that may be chosen and its weight relative to the most likely one.
type candidate struct {
	id     int32
	logit  float32
	weight float64
}

// before orders candidates from the most likely down, equals by id.
func (c candidate) before(d candidate) bool {
	return c.logit > d.logit || c.logit == d.logit && c.id < d.id
}

// New makes a sampler, or says which parameter is out of range.
func New(p Params) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{params: p, biased: p.biased()}, nil
}

// Params returns what the sampler was made with.
func (s *Sampler) Params() Params { return s.params }

// Pick chooses the n-th output token (from 0) from logits [vocabulary]. A logit of -Inf is never
// chosen. NaN, +Inf, or nothing to choose from is an error: the model or its weights are broken.
func (s *Sampler) Pick(logits []float32, n int) (int32, error) {
	top, err := most(logits)
	if err != nil {
		return 0, fmt.Errorf("sample output token %d: %w", n, err)
	}
	p := &s.params
	if p.Temperature == 0 || p.TopK == 1 {
		return top.id, nil
	}
	u := uniform(p.Seed, uint64(n))
	switch {
	case p.TopK > 0 && p.TopK < len(logits):
		total := s.keepTopK(logits, p.TopK, top.logit)
		return draw(s.cut(top.logit, total), u), nil
	case p.TopP > 0 && p.TopP < 1:
		total := s.keepLikely(logits, top.logit)
		return draw(s.cut(top.logit, total), u), nil
	}
	return s.drawAll(logits, top.logit, u), nil
}

// most returns the most likely token, the lowest id of equals.
func most(logits []float32) (candidate, error) {
	best := candidate{id: -1, logit: float32(math.Inf(-1))}
	const stride = 8
	for from := 0; from < len(logits); from += stride {
		if from+stride <= len(logits) && best.covers((*[stride]float32)(logits[from:])) {
			continue
		}
		for i := from; i < min(from+stride, len(logits)); i++ {
			if l := logits[i]; l > best.logit {
				best.id, best.logit = int32(i), l
			} else if l != l {
				return best, fmt.Errorf("the logit of token %d is NaN", i)
			}
		}
	}
	if math.IsInf(float64(best.logit), 1) {
		return best, fmt.Errorf("the logit of token %d is +Inf", best.id)
	}
	if best.id < 0 {
		return best, fmt.Errorf("none of the %d tokens may be chosen", len(logits))
	}
	return best, nil
}

// covers reports whether none of them is larger, nor NaN. Of many in a row it is true of nearly
// all, and takes less than half of the time that looking at each for itself does.
func (c *candidate) covers(x *[8]float32) bool {
	top := c.logit
	return top >= x[0] && top >= x[1] && top >= x[2] && top >= x[3] &&
		top >= x[4] && top >= x[5] && top >= x[6] && top >= x[7]
}

// weight is the probability of a logit over that of the most likely one.
func (s *Sampler) weight(logit, top float32) float64 {
	return exp((float64(logit) - float64(top)) / s.params.Temperature)
}

// negligible is a weight's logarithm below which even a whole vocabulary of such tokens weighs less
// than chance can tell apart (2^-53).
const negligible = -60

// above is the logit at which a token's weight is share.
func (s *Sampler) above(top float32, share float64) float64 {
	return float64(top) + s.params.Temperature*max(math.Log(share), negligible)
}

// drawAll chooses among all tokens that MinP leaves, in the order of their ids.
func (s *Sampler) drawAll(logits []float32, top float32, u float64) int32 {
	total, floor := 0.0, s.above(top, s.params.MinP)
	for _, l := range logits {
		if float64(l) >= floor {
			total += s.weight(l, top)
		}
	}
	rest, last := u*total, int32(0)
	for i, l := range logits {
		if float64(l) < floor {
			continue
		}
		last = int32(i)
		if rest -= s.weight(l, top); rest < 0 {
			break
		}
	}
	return last // Rounding may leave a rest after the last token.
}

// keepTopK fills the heap with the k most likely tokens and returns their weight.
func (s *Sampler) keepTopK(logits []float32, k int, top float32) float64 {
	s.heap = topK(s.heap[:0], logits, k)
	total := 0.0
	for i := range s.heap {
		s.heap[i].weight = s.weight(s.heap[i].logit, top)
		total += s.heap[i].weight
	}
	return total
}

// topK appends the k most likely tokens that may be chosen to an empty heap, in no order.
func topK(heap []candidate, logits []float32, k int) []candidate {
	if k <= 0 {
		return heap
	}
	least := func(a, b candidate) bool { return b.before(a) }
	for i, l := range logits {
		c := candidate{id: int32(i), logit: l}
		switch {
		case math.IsInf(float64(l), -1):
		case len(heap) < k:
			heap = append(heap, c)
			if len(heap) == k {
				heapify(heap, least)
			}
		case l > heap[0].logit: // An equal one has the higher id.
			heap[0] = c
			sink(heap, 0, least)
		}
	}
	return heap
}

// keepLikely fills the heap with every token that TopP could keep and returns the weight of all.
// Tokens whose probability is below (1-TopP)/V hold less than 1-TopP together: none is needed.
func (s *Sampler) keepLikely(logits []float32, top float32) float64 {
	total, floor := 0.0, s.above(top, 0)
	for _, l := range logits {
		if float64(l) >= floor {
			total += s.weight(l, top)
		}
	}
	least := (1 - s.params.TopP) * total / float64(len(logits))
	floor = s.above(top, least*(1-1e-9)) // Rounding must not drop one that is needed.
	s.heap = s.heap[:0]
	for i, l := range logits {
		if float64(l) >= floor {
			s.heap = append(s.heap, candidate{id: int32(i), logit: l, weight: s.weight(l, top)})
		}
	}
	return total
}

// cut returns the heap's tokens that TopP and MinP keep, the most likely one last. total is the
// weight of which TopP is a share.
func (s *Sampler) cut(top float32, total float64) []candidate {
	limit, floor := math.Inf(1), s.above(top, s.params.MinP)
	if s.params.TopP > 0 && s.params.TopP < 1 {
		limit = s.params.TopP * total
	}
	heapify(s.heap, candidate.before)
	end, sum := len(s.heap), 0.0
	for end > 0 && sum < limit && float64(s.heap[0].logit) >= floor {
		sum += s.heap[0].weight
		end--
		s.heap[0], s.heap[end] = s.heap[end], s.heap[0]
		sink(s.heap[:end], 0, candidate.before)
	}
	return s.heap[end:]
}

// draw chooses among candidates by weight, from the last, the most likely, down.
func draw(kept []candidate, u float64) int32 {
	total := 0.0
	for i := len(kept) - 1; i >= 0; i-- {
		total += kept[i].weight
	}
	rest := u * total
	for i := len(kept) - 1; i > 0; i-- {
		if rest -= kept[i].weight; rest < 0 {
			return kept[i].id
		}
	}
	return kept[0].id
}
