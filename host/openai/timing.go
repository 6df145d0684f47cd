package openai

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// HeaderTiming names the header that tells how the time to the first token was spent. Its phases
// follow each other and add up to it.
const HeaderTiming = "Server-Timing"

// HeaderPolicy names the header that says which policy decided the step of the first token: the
// decode instance's, behind a router.
const HeaderPolicy = "X-Engine-Policy"

// Timing is how the time to the first token was spent.
type Timing struct {
	// Queue is the wait for the first chunk, Prefill the computation of the prompt; Transfer what
	// of the hand-over was not hidden behind it, Wait until the decode instance began with the
	// rest, First the rest and the way back.
	Queue, Prefill, Transfer, Wait, First time.Duration
}

// phases lists the parts with their names on the wire.
func (t *Timing) phases() []struct {
	Name string
	Took *time.Duration
} {
	return []struct {
		Name string
		Took *time.Duration
	}{{"queue", &t.Queue}, {"prefill", &t.Prefill}, {"transfer", &t.Transfer},
		{"decode_wait", &t.Wait}, {"first_token", &t.First}}
}

// Each calls f with the parts in their order.
func (t Timing) Each(f func(name string, took time.Duration)) {
	for _, p := range t.phases() {
		f(p.Name, *p.Took)
	}
}

// Sum is the time to the first token.
func (t Timing) Sum() time.Duration { return t.Queue + t.Prefill + t.Transfer + t.Wait + t.First }

// String is the header's value.
func (t Timing) String() string {
	var parts []string
	t.Each(func(name string, took time.Duration) {
		parts = append(parts, fmt.Sprintf("%s;dur=%.3f", name, Milliseconds(took)))
	})
	return strings.Join(parts, ", ")
}

// ParseTiming reads a header's value; what it does not know, or is no time, is left out.
func ParseTiming(value string) (t Timing) {
	for part := range strings.SplitSeq(value, ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(part), ";")
		ms, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(rest), "dur="), 64)
		const most = float64(24 * time.Hour / time.Millisecond)
		if err != nil || !(ms >= 0 && ms <= most) {
			continue
		}
		for _, p := range t.phases() {
			if p.Name == name {
				*p.Took = FromMilliseconds(ms)
			}
		}
	}
	return t
}
