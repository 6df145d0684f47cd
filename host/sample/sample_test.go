package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func source(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// naive is what Pick means: sort everything, keep what the parameters say, draw from the rest.
// It returns the kept tokens, most likely first, with their probabilities.
func naive(logits []float32, p Params) (ids []int32, probs []float64) {
	for i, l := range logits {
		if !math.IsInf(float64(l), -1) {
			ids = append(ids, int32(i))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	if p.Temperature == 0 {
		return ids[:1], []float64{1}
	}
	if p.TopK > 0 && p.TopK < len(ids) {
		ids = ids[:p.TopK]
	}
	total := 0.0
	for _, id := range ids {
		w := math.Exp((float64(logits[id]) - float64(logits[ids[0]])) / p.Temperature)
		probs = append(probs, w)
		total += w
	}
	sum, keep := 0.0, 0
	for keep < len(ids) && probs[keep] >= p.MinP && !(p.TopP > 0 && p.TopP < 1 && sum >= p.TopP) {
		sum += probs[keep] / total
		keep++
	}
	ids, probs, total = ids[:keep], probs[:keep], 0
	for _, w := range probs {
		total += w
	}
	for i := range probs {
		probs[i] /= total
	}
	return ids, probs
}

func randomLogits(r *rand.Rand, n int) []float32 {
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
		switch r.IntN(12) {
		case 0:
			logits[i] = float32(math.Inf(-1))
		case 1:
			logits[i] = float32(r.IntN(3)) // Equals.
		}
	}
	logits[r.IntN(n)] = 1
	return logits
}

func randomParams(r *rand.Rand, n int) Params {
	p := Params{Temperature: math.Exp(r.NormFloat64()), Seed: r.Uint64()}
	if r.IntN(2) == 0 {
		p.TopK = 1 + r.IntN(n+2)
	}
	if r.IntN(2) == 0 {
		p.TopP = 0.01 + 0.99*r.Float64()
	}
	if r.IntN(3) == 0 {
		p.MinP = r.Float64() * 0.3
	}
	if r.IntN(10) == 0 {
		p.Temperature = 0
	}
	return p
}

// TestKeepsWhatTheTwinKeeps draws often enough to see every likely token and checks that the draws
// are those of the naive twin: the same tokens, at the same rates.
func TestKeepsWhatTheTwinKeeps(t *testing.T) {
	r := source(t)
	for range 300 {
		logits := randomLogits(r, 2+r.IntN(40))
		p := randomParams(r, len(logits))
		s, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		ids, probs := naive(logits, p)
		const draws = 2000
		got := make([]float64, len(logits))
		for n := range draws {
			id, err := s.Pick(logits, n)
			if err != nil {
				t.Fatal(err)
			}
			got[id]++
		}
		want := make([]float64, len(logits))
		for i, id := range ids {
			want[id] = probs[i] * draws
		}
		for id := range logits {
			// Six standard deviations of a binomial, and one for the rare.
			slack := 6*math.Sqrt(want[id]*(1-want[id]/draws)) + 1e-6
			if want[id] > 0 {
				slack += 6
			}
			if math.Abs(got[id]-want[id]) > slack {
				t.Fatalf("params %+v, logits %v: token %d drawn %.0f times, want %.1f",
					p, logits, id, got[id], want[id])
			}
		}
	}
}

func TestGreedyTakesTheLowestIDOfEquals(t *testing.T) {
	s, _ := New(Params{})
	if id, err := s.Pick([]float32{-1, 3, 2, 3}, 0); id != 1 || err != nil {
		t.Fatalf("picked %d, %v", id, err)
	}
}

func TestSameSeedAndNumberSameChoice(t *testing.T) {
	r := source(t)
	logits := randomLogits(r, 1000)
	p := Params{Temperature: 1, TopP: 0.9, Seed: 7}
	a, _ := New(p)
	want := make([]int32, 50)
	for n := range want {
		want[n], _ = a.Pick(logits, n)
	}
	b, _ := New(p) // The sequence goes on elsewhere, in any order.
	for _, n := range r.Perm(len(want)) {
		if got, _ := b.Pick(logits, n); got != want[n] {
			t.Fatalf("output token %d: %d, then %d", n, want[n], got)
		}
	}
}

// TestChanceIsUniform checks rates and that neighbouring seeds and numbers do not move together.
func TestChanceIsUniform(t *testing.T) {
	first := source(t).Uint64()
	const side, cells = 300, 10
	var alone [cells]int
	var seeds, numbers [cells][cells]int
	for s := range uint64(side) {
		for n := range uint64(side) {
			u := uniform(first+s, n)
			if u < 0 || u >= 1 {
				t.Fatalf("u = %v", u)
			}
			i := int(u * cells)
			alone[i]++
			seeds[i][int(uniform(first+s+1, n)*cells)]++
			numbers[i][int(uniform(first+s, n+1)*cells)]++
		}
	}
	near := func(name string, count, share int) {
		want := float64(side*side) / float64(share)
		if math.Abs(float64(count)-want) > 6*math.Sqrt(want) {
			t.Errorf("%s: %d, want near %.0f", name, count, want)
		}
	}
	for i := range cells {
		near("alone", alone[i], cells)
		for j := range cells {
			near("neighbouring seeds", seeds[i][j], cells*cells)
			near("neighbouring numbers", numbers[i][j], cells*cells)
		}
	}
}

func TestBrokenLogitsAreErrors(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, p := range []Params{
		{}, {Temperature: 1}, {Temperature: 1, TopK: 2}, {Temperature: 1, TopP: 0.5},
	} {
		s, _ := New(p)
		for _, logits := range [][]float32{{1, nan, 2}, {1, inf}, {-inf, -inf}, {}, nil, {nan}} {
			if id, err := s.Pick(logits, 0); err == nil {
				t.Errorf("%+v: picked %d from %v", p, id, logits)
			}
		}
		if id, err := s.Pick([]float32{-inf, 5, -inf}, 0); id != 1 || err != nil {
			t.Errorf("%+v: one choice: picked %d, %v", p, id, err)
		}
	}
}

func TestValidate(t *testing.T) {
	nan := math.NaN()
	for _, p := range []Params{
		{Temperature: -1},
		{Temperature: nan},
		{Temperature: math.Inf(1)},
		{TopP: 1.5},
		{TopP: -0.1},
		{TopK: -2},
		{MinP: 2},
		{RepetitionPenalty: -1},
		{FrequencyPenalty: 3},
		{PresencePenalty: nan},
		{LogitBias: map[int32]float64{1: 101}},
		{LogitBias: map[int32]float64{-1: 1}},
	} {
		if _, err := New(p); err == nil {
			t.Errorf("%+v is accepted", p)
		} else {
			t.Log(err)
		}
	}
	p := Params{Temperature: 2, TopK: -1, TopP: 1, RepetitionPenalty: 1.2}
	if _, err := New(p); err != nil {
		t.Error(err)
	}
}

func TestExtremeTemperatures(t *testing.T) {
	logits := []float32{1, 1.0001, -1e38, 0}
	for _, p := range []Params{{Temperature: 1e-300}, {Temperature: 1e-300, TopP: 0.9}} {
		s, _ := New(p)
		if id, err := s.Pick(logits, 3); id != 1 || err != nil {
			t.Errorf("%+v: picked %d, %v", p, id, err)
		}
	}
	s, _ := New(Params{Temperature: 3e38})
	seen := map[int32]bool{}
	for n := range 200 {
		id, err := s.Pick(logits, n)
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	if len(seen) != len(logits) {
		t.Errorf("hot: only %v were drawn", seen)
	}
}

func TestExp(t *testing.T) {
	r := source(t)
	for range 100_000 {
		x := -r.Float64() * 700
		if got, want := exp(x), math.Exp(x); math.Abs(got/want-1) > 1e-12 {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, math.Inf(-1): 0, -701: 0} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	logits := randomLogits(source(t), 5000)
	for _, p := range []Params{
		{}, {Temperature: 1}, {Temperature: 1, TopK: 40}, {Temperature: 1, TopP: 0.9},
	} {
		s, _ := New(p)
		if n := testing.AllocsPerRun(20, func() { s.Pick(logits, 1) }); n != 0 {
			t.Errorf("%+v: %v allocations", p, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, 150_000)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	for i := range 20 {
		logits[i*7000] = 12 + float32(i)/4 // A few likely tokens, as real ones have.
	}
	for name, p := range map[string]Params{
		"greedy": {}, "all": {Temperature: 0.8}, "top_k=40": {Temperature: 0.8, TopK: 40},
		"top_p=0.95":      {Temperature: 0.8, TopP: 0.95},
		"flat,top_p=0.95": {Temperature: 1e6, TopP: 0.95},
	} {
		b.Run(name, func(b *testing.B) {
			s, _ := New(p)
			for n := range b.N {
				s.Pick(logits, n)
			}
		})
	}
}

// TestMost: the fast search finds what a plain one does, wherever the largest, its equals and what
// is no number stand.
func TestMost(t *testing.T) {
	random := source(t)
	for range 4000 {
		logits := make([]float32, random.IntN(40))
		for i := range logits {
			logits[i] = float32(random.IntN(8) - 6)
			if random.IntN(10) == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		if len(logits) > 0 && random.IntN(4) == 0 {
			logits[random.IntN(len(logits))] = float32(math.NaN())
		}
		want, bad := int32(-1), false
		for i, l := range logits {
			if bad = bad || l != l; !math.IsInf(float64(l), -1) && (want < 0 || l > logits[want]) {
				want = int32(i)
			}
		}
		got, err := most(logits)
		if (err != nil) != (bad || want < 0) || err == nil && got.id != want {
			t.Fatalf("%v: %+v %v, want %d, not a number %v", logits, got, err, want, bad)
		}
	}
}
