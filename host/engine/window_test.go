package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/generation"
)

// sliding is a model with a window and a pool that could not hold one long prompt without it.
func sliding(window, sinks int) worldOptions {
	o := small()
	o.sight = sight{window, sinks}
	o.context, o.pages = 300, 30
	return o
}

// TestWindowLocalAndHandedOverAgreeWithTheOracle: what slid out is neither kept nor sent, on either
// side, whatever either has of the prompt already.
func TestWindowLocalAndHandedOverAgreeWithTheOracle(t *testing.T) {
	for _, o := range []worldOptions{sliding(17, 0), sliding(24, 5), sliding(3, 1)} {
		t.Run(fmt.Sprint(o.window, " and ", o.sinks, " sinks"), func(t *testing.T) {
			w := newWorld(t, o)
			r := rand.New(rand.NewPCG(uint64(o.window), 3))
			long := prompt(260, 1)
			for n := range 40 {
				tokens := slices.Clone(long[:1+r.IntN(250)])
				if n%2 == 0 {
					tokens = append(tokens, prompt(1+r.IntN(9), uint64(n))...)
				}
				ask := generation.Request{ID: fmt.Sprint("id", n), Prompt: tokens, MaxTokens: 30}
				want := o.oracle(tokens, 30)
				if n%3 > 0 {
					s, err := w.prefill.Generate(t.Context(), ask)
					if err != nil {
						t.Fatal(err)
					}
					got, err := read(t.Context(), s)
					if err != nil || !slices.Equal(got, want) {
						t.Fatalf("local, %d tokens: %v %v, want %v", len(tokens), got, err, want)
					}
				}
				got, err := w.handOver(t.Context(), ask)
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("handed over, %d tokens: %v %v, want %v", len(tokens), got, err, want)
				}
			}
			w.rest()
		})
	}
}

// TestWindowBoundsWhatIsSent: of a long prompt only the sinks and what is in sight crosses.
func TestWindowBoundsWhatIsSent(t *testing.T) {
	w := newWorld(t, sliding(16, 4))
	ask := generation.Request{ID: "a", Prompt: prompt(201, 1), MaxTokens: 2}
	reserved, err := w.decode.PrepareReceive(t.Context(), ask, 200)
	if err != nil {
		t.Fatal(err)
	}
	stats, _, err := w.decode.Stats(t.Context())
	if err != nil || stats.Held != 5 {
		t.Fatalf("the reservation holds %d pages, want one with the sinks and 4 in sight: %v",
			stats.Held, err)
	}
	sent, err := w.prefill.RemoteSend(t.Context(), ask,
		generation.Send{End: 200, Metadata: reserved.Metadata})
	if want := int64(5 * pageSize * 8 * fakeLayers); err != nil || sent.Bytes != want {
		t.Fatalf("%d bytes were sent, want %d: %v", sent.Bytes, want, err)
	}
	s, err := w.decode.StartGenerate(t.Context(), ask, 200)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t.Context(), s)
	if want := w.options.oracle(ask.Prompt, 2); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v %v, want %v", got, err, want)
	}
	w.rest()
}

// TestWindowRandomLives is TestRandomLives with a window.
func TestWindowRandomLives(t *testing.T) {
	o := small()
	o.sight = sight{window: 11, sinks: 2}
	randomLives(t, o)
}

// TestWindowsMustBeEqual: instances whose models differ in window or sinks refuse each other.
func TestWindowsMustBeEqual(t *testing.T) {
	ask := generation.Request{ID: "a", Prompt: prompt(50, 1), MaxTokens: 2}
	for _, o := range []worldOptions{sliding(17, 4), sliding(16, 5), small()} {
		w, other := newWorld(t, sliding(16, 4)), newWorld(t, o)
		reserved, err := w.decode.PrepareReceive(t.Context(), ask, 49)
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.prefill.RemoteSend(t.Context(), ask,
			generation.Send{End: 49, Metadata: reserved.Metadata})
		if code(err) != generation.CodeIncompatible {
			t.Errorf("window %d and %d sinks: %v", o.window, o.sinks, err)
		}
	}
}
