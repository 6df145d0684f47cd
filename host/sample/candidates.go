package sample

import (
	"cmp"
	"math"
	"slices"
)

// MaxCandidates is the most tokens that PickFrom looks at.
const MaxCandidates = 256

// Candidates are the most likely tokens of a row of logits, and what is to be known of the others:
// a row that lies elsewhere need not be brought here for a choice among a few.
type Candidates struct {
	// IDs are the tokens, most likely first and the lowest id of equals first, Logits theirs.
	IDs    []int32
	Logits []float32
	// Vocabulary is how many logits the row has. None of the others comes before the last listed.
	Vocabulary int
	// Sum is Σ exp((logit - largest)/temperature) over the row, at most SumError of it off. Without
	// a temperature it is not looked at.
	Sum, SumError float64
}

// Candidates is how many tokens PickFrom looks at: 1 for the most likely one. 0: Pick needs the
// whole row, because nothing bounds how unlikely a token it may choose, or because penalties and
// biases may change the order.
func (p *Params) Candidates() int {
	switch {
	case p.Adjusts():
		return 0
	case p.Temperature == 0 || p.TopK == 1:
		return 1
	case p.TopK > MaxCandidates:
		return 0
	case p.TopK > 0:
		return p.TopK
	case p.TopP > 0 && p.TopP < 1 || p.MinP > 0:
		return MaxCandidates
	}
	return 0
}

// PickFrom is the choice that Pick would make of the n-th output token from the whole row, bit for
// bit, or false where the candidates do not tell: too few of them hold the likely share, or an end
// of the share lies where the sum's error does.
func (s *Sampler) PickFrom(c Candidates, n int) (int32, bool) {
	p := &s.params
	if p.Adjusts() || len(c.IDs) == 0 || !finite(c.Logits[0]) {
		return 0, false
	}
	if p.Temperature == 0 || p.TopK == 1 {
		return c.IDs[0], true
	}
	u := uniform(p.Seed, uint64(n))
	s.list(&c)
	switch {
	case p.TopK > 0 && p.TopK < c.Vocabulary:
		if len(c.IDs) < p.TopK {
			return 0, false
		}
		return s.pickBest(u)
	case p.TopP > 0 && p.TopP < 1:
		return s.pickLikely(&c, u)
	}
	return s.pickAbove(&c, u)
}

func finite(l float32) bool { return l-l == 0 }

// list puts what may be chosen of the candidates into the heap's memory, most likely first.
func (s *Sampler) list(c *Candidates) {
	s.heap = s.heap[:0]
	most := len(c.IDs)
	if s.params.TopK > 0 && s.params.TopK < c.Vocabulary {
		most = min(most, s.params.TopK)
	}
	for i, l := range c.Logits[:most] {
		if math.IsInf(float64(l), -1) {
			break
		}
		s.heap = append(s.heap, candidate{id: c.IDs[i], logit: l, weight: s.weight(l, c.Logits[0])})
	}
}

// pickBest draws from the k best, which are all there. The order in which Pick sums their weights
// is another one, and by rounding its limit of top-p too.
func (s *Sampler) pickBest(u float64) (int32, bool) {
	const rounding = MaxCandidates * 0x1p-50
	total := 0.0
	for i := range s.heap {
		total += s.heap[i].weight
	}
	kept, ok := s.cutList(total, rounding)
	if kept == 0 || !ok && kept < len(s.heap) {
		return 0, false
	}
	return s.drawFirst(kept, u), true
}

// pickLikely draws from the fewest tokens that hold the share TopP of the row's probability.
func (s *Sampler) pickLikely(c *Candidates, u float64) (int32, bool) {
	kept, ok := s.cutList(c.Sum, c.SumError)
	if !ok {
		return 0, false
	}
	// Pick looks only at logits that the share may need, by a bound that always holds but for
	// rounding: the last one kept must be clear of it.
	least := (1 - s.params.TopP) * c.Sum * (1 + c.SumError) / float64(c.Vocabulary)
	if kept == 0 || float64(s.heap[kept-1].logit) < s.above(c.Logits[0], least) {
		return 0, false
	}
	return s.drawFirst(kept, u), true
}

// cutList is how many of the list top-p and min-p keep, where all weigh total, up to an error
// relative to it. It is false where the error hides the end, and where the list ends before it.
func (s *Sampler) cutList(total, off float64) (kept int, ok bool) {
	if !(total > 0) || math.IsInf(total, 1) {
		return 0, false
	}
	low, high := math.Inf(1), math.Inf(1)
	if s.params.TopP > 0 && s.params.TopP < 1 {
		low, high = s.params.TopP*total*(1-off), s.params.TopP*total*(1+off)
	}
	floor, sum := s.above(s.heap[0].logit, s.params.MinP), 0.0
	for i := range s.heap {
		switch {
		case float64(s.heap[i].logit) < floor || sum >= high:
			return i, true
		case sum >= low:
			return i, false
		}
		sum += s.heap[i].weight
	}
	return len(s.heap), sum >= high
}

// pickAbove draws from all tokens that min-p keeps, in the order of their ids, if they are listed.
func (s *Sampler) pickAbove(c *Candidates, u float64) (int32, bool) {
	floor := s.above(c.Logits[0], s.params.MinP)
	kept := 0
	for kept < len(s.heap) && float64(s.heap[kept].logit) >= floor {
		kept++
	}
	if kept == len(s.heap) && kept < c.Vocabulary && kept == len(c.IDs) {
		return 0, false
	}
	slices.SortFunc(s.heap[:kept], func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	total := 0.0
	for i := range kept {
		total += s.heap[i].weight
	}
	rest := u * total
	for i := range kept {
		if rest -= s.heap[i].weight; rest < 0 {
			return s.heap[i].id, true
		}
	}
	return s.heap[kept-1].id, true
}

// drawFirst draws one of the first of the list.
func (s *Sampler) drawFirst(kept int, u float64) int32 {
	slices.Reverse(s.heap[:kept])
	return draw(s.heap[:kept], u)
}
