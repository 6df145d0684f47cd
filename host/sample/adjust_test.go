package sample

import (
	"math"
	"slices"
	"testing"
)

func TestAdjust(t *testing.T) {
	prompt, output := []int32{0, 1, 9}, []int32{1, 2, 2, -4}
	for _, c := range []struct {
		name string
		p    Params
		want []float32
	}{
		{"off", Params{Temperature: 1, RepetitionPenalty: 1}, []float32{4, -4, 2, 1}},
		{"repetition", Params{RepetitionPenalty: 2}, []float32{2, -8, 1, 1}},
		{"frequency", Params{FrequencyPenalty: 0.5}, []float32{4, -4.5, 1, 1}},
		{"presence", Params{PresencePenalty: -2}, []float32{4, -2, 4, 1}},
		{"bias", Params{LogitBias: map[int32]float64{3: 100, 77: 1}}, []float32{4, -4, 2, 101}},
		{"all", Params{
			RepetitionPenalty: 2, FrequencyPenalty: 1, PresencePenalty: 1,
			LogitBias: map[int32]float64{0: -1},
		}, []float32{1, -10, -2, 1}},
	} {
		s, err := New(c.p)
		if err != nil {
			t.Fatal(err)
		}
		got := []float32{4, -4, 2, 1}
		s.Adjust(got, prompt, output)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLogprobs(t *testing.T) {
	r := source(t)
	logits := randomLogits(r, 50)
	chosen := int32(r.IntN(50))
	one, top, err := Logprobs(logits, chosen, 5)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	of := func(id int32) float64 { return float64(logits[id]) - math.Log(sum) }
	if one.ID != chosen || one.Logprob != of(chosen) && math.Abs(one.Logprob-of(chosen)) > 1e-9 {
		t.Errorf("chosen %v, want %v", one, of(chosen))
	}
	ids, _ := naive(logits, Params{Temperature: 1, TopK: 5})
	for i, l := range top {
		if l.ID != ids[i] || math.Abs(l.Logprob-of(l.ID)) > 1e-9 {
			t.Errorf("top %d is %v, want token %d with %v", i, l, ids[i], of(ids[i]))
		}
	}
	if len(top) != 5 {
		t.Errorf("%d listed", len(top))
	}
	if _, none, err := Logprobs(logits, 0, 0); len(none) != 0 || err != nil {
		t.Errorf("top 0 lists %v, %v", none, err)
	}
	for _, bad := range []struct{ chosen, top int }{{-1, 0}, {50, 0}, {0, 21}, {0, -1}} {
		if _, _, err := Logprobs(logits, int32(bad.chosen), bad.top); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
