package api

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestStopperEqualsWholeText cuts random texts at random places: what is shown must be the text up
// to the first stop string, wherever the cuts were.
func TestStopperEqualsWholeText(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("ab"[r.IntN(2)])
		}
		return b.String()
	}
	for range 5000 {
		text := word(r.IntN(30))
		stops := make([]string, r.IntN(3))
		for i := range stops {
			stops[i] = word(1 + r.IntN(4))
		}
		want, found := text, false
		for i := range text {
			for _, stop := range stops {
				if !found && strings.HasPrefix(text[i:], stop) {
					want, found = text[:i], true
				}
			}
		}
		s := stopper{stops: stops}
		got, saw := "", false
		for rest := text; rest != "" && !saw; {
			n := 1 + r.IntN(len(rest))
			var shown string
			shown, saw = s.push(rest[:n])
			got += shown
			rest = rest[n:]
		}
		if !saw {
			got += s.flush()
		}
		// A stop string that ends earlier may be seen before a longer one that begins earlier is
		// whole; only then may more be shown than the earliest start allows.
		if saw != found || !strings.HasPrefix(text, got) || (got != want &&
			!later(text, got, stops)) {
			t.Fatalf("text %q stops %q: shown %q (stop %v), want %q (stop %v)",
				text, stops, got, saw, want, found)
		}
	}
}

// later reports whether a stop string begins where got ends.
func later(text, got string, stops []string) bool {
	for _, stop := range stops {
		if strings.HasPrefix(text[len(got):], stop) {
			return true
		}
	}
	return false
}
