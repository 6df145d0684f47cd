package engine

import (
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/generation"
)

// TestAnotherInstanceGoesOnBehindTheTokensThatWereHandedOut cuts every request after each of its
// tokens and lets another engine generate the rest, by itself and from a hand-off: tokens,
// log-probabilities and the reason are those of the engine that did it all, with penalties,
// min_tokens, a form, a seed and the length limit.
func TestAnotherInstanceGoesOnBehindTheTokensThatWereHandedOut(t *testing.T) {
	first, second := newWorld(t, small()), newWorld(t, small())
	for n := range 8 {
		s, err := first.decode.Generate(t.Context(), adjusted(n))
		if err != nil {
			t.Fatal(err)
		}
		want, err := readAll(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for k := 1; k < len(want.tokens); k++ {
			ask := adjusted(n)
			ask.Prompt, ask.Emitted = slices.Concat(ask.Prompt, want.tokens[:k]), k
			if s, err = second.decode.Generate(t.Context(), ask); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t.Context(), s)
			if err != nil || got.finish != want.finish ||
				!slices.Equal(got.tokens, want.tokens[k:]) ||
				got.logprobs[0].Chosen != want.logprobs[k].Chosen {
				t.Errorf("request %d after %d tokens: %+v, %v; want %+v", n, k, got, err, want)
			}
			if k%4 == 1 {
				ask = adjusted(n)
				ask.Prompt, ask.Emitted = slices.Concat(ask.Prompt, want.tokens[:k]), k
				rest, err := second.handOver(t.Context(), ask)
				if err != nil || !slices.Equal(rest, want.tokens[k:]) {
					t.Errorf("request %d handed over after %d: %v, %v", n, k, rest, err)
				}
			}
		}
	}
	second.rest()
}

func TestEmittedTokensThatCannotBeAreRefused(t *testing.T) {
	w := newWorld(t, small())
	for name, ask := range map[string]generation.Request{
		"negative":       {Prompt: prompt(9, 3), Emitted: -1},
		"the whole":      {Prompt: prompt(9, 3), Emitted: 9},
		"all that may":   {Prompt: prompt(9, 3), Emitted: 4, MaxTokens: 4},
		"an ended shape": {Prompt: prompt(9, 3), Emitted: 4, Constraint: &parity{most: 3}},
	} {
		_, err := w.decode.Generate(t.Context(), ask)
		e := generation.AsError(err)
		if e == nil || e.Code != generation.CodeInvalidValue || e.Param != "emitted_tokens" {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.rest()
}
