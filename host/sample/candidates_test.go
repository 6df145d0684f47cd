package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// candidatesOf are the best k of a row, and a sum that is off by as much as may be.
func candidatesOf(r *rand.Rand, logits []float32, k int, temperature float64) Candidates {
	c := Candidates{Vocabulary: len(logits), SumError: 1e-4}
	ids := make([]int32, len(logits))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	for _, l := range logits {
		c.Sum += math.Exp((float64(l) - float64(logits[ids[0]])) / temperature)
	}
	c.Sum *= 1 + 0.99e-4*[]float64{-1, 0, 1, 2*r.Float64() - 1}[r.IntN(4)]
	c.IDs = ids[:min(k, len(ids))]
	for _, id := range c.IDs {
		c.Logits = append(c.Logits, logits[id])
	}
	return c
}

// TestCandidatesGiveTheSameChoice: what is chosen from a few is what is chosen from all, for every
// setting, also where an end of top-p lies on the edge between two tokens, and where all are equal.
func TestCandidatesGiveTheSameChoice(t *testing.T) {
	r := source(t)
	told := map[string]int{}
	for i := range 8000 {
		n := 1 + r.IntN(600)
		logits := randomLogits(r, n)
		p := randomParams(r, n)
		p.RepetitionPenalty, p.FrequencyPenalty, p.PresencePenalty, p.LogitBias = 0, 0, 0, nil
		if i%3 == 0 { // Shares of equals: 1/8, 2/8 … are exact.
			logits = logits[:min(n, 8)]
			for i := range logits {
				logits[i] = 1
			}
			p.TopP = float64(1+r.IntN(8)) / 8
		}
		if i%5 == 0 && p.TopK > 0 {
			p.TopK = 1 + r.IntN(40)
		}
		s, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		k := p.Candidates()
		if k == 0 {
			k = 1 + r.IntN(MaxCandidates)
		}
		c := candidatesOf(r, logits, k, p.Temperature)
		draw := r.IntN(1000)
		got, ok := s.PickFrom(c, draw)
		want, err := s.Pick(logits, draw)
		if err != nil {
			t.Fatal(err)
		}
		if ok && got != want {
			t.Fatalf("%+v, %d logits: token %d from %d candidates, %d from all", p, len(logits),
				got, len(c.IDs), want)
		}
		kind := "all"
		switch {
		case i%3 == 0:
			kind = "equals"
		case p.Candidates() == 1:
			kind = "greedy"
		case p.TopK > 0 && p.TopK < len(logits):
			kind = "top k"
		case p.TopP > 0 && p.TopP < 1:
			kind = "top p"
		case p.MinP > 0:
			kind = "min p"
		}
		told[kind+" asked"]++
		if ok {
			told[kind]++
		}
	}
	t.Log(told)
	for kind, least := range map[string]float64{"greedy": 1, "top k": 0.6, "top p": 0.5,
		"min p": 0.5} {
		if share := float64(told[kind]) / float64(told[kind+" asked"]); !(share >= least) {
			t.Errorf("%s: candidates tell in %.2f of the cases", kind, share)
		}
	}
}

// TestCandidatesThatTellNothing are refused.
func TestCandidatesThatTellNothing(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, c := range map[string]Candidates{
		"none":        {Vocabulary: 9, Sum: 1},
		"NaN":         {IDs: []int32{0}, Logits: []float32{inf - inf}, Vocabulary: 9, Sum: 1},
		"infinite":    {IDs: []int32{0}, Logits: []float32{inf}, Vocabulary: 9, Sum: 1},
		"impossible":  {IDs: []int32{0}, Logits: []float32{-inf}, Vocabulary: 9, Sum: 1},
		"a NaN below": {IDs: []int32{0}, Logits: []float32{1}, Vocabulary: 9, Sum: math.NaN()},
	} {
		s, err := New(Params{Temperature: 1, TopP: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := s.PickFrom(c, 0); ok {
			t.Errorf("%s: token %d", name, id)
		}
	}
	s, err := New(Params{FrequencyPenalty: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.PickFrom(Candidates{IDs: []int32{3}, Logits: []float32{1}, Vocabulary: 9,
		Sum: 1}, 0); ok {
		t.Error("a choice that penalties may change was made from the best alone")
	}
}

// TestWhatNeedsTheWholeRow: how many candidates each setting looks at.
func TestWhatNeedsTheWholeRow(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want int
	}{
		{Params{}, 1}, {Params{Temperature: 1, TopK: 1}, 1}, {Params{Temperature: 1}, 0},
		{Params{Temperature: 1, TopP: 1}, 0}, {Params{Temperature: 1, TopK: -1}, 0},
		{Params{Temperature: 1, TopK: 40}, 40}, {Params{Temperature: 1, TopK: 40, TopP: 0.5}, 40},
		{Params{Temperature: 1, TopK: 257, TopP: 0.5}, 0},
		{Params{Temperature: 1, TopP: 0.9}, MaxCandidates},
		{Params{Temperature: 1, MinP: 0.1}, MaxCandidates},
		{Params{PresencePenalty: 1}, 0}, {Params{LogitBias: map[int32]float64{3: 1}}, 0},
	} {
		if got := c.p.Candidates(); got != c.want {
			t.Errorf("%+v: %d candidates, want %d", c.p, got, c.want)
		}
	}
}
