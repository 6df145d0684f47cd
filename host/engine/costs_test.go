package engine

import (
	"testing"
	"time"
)

// TestCostsOfEqualSteps: an engine at full load makes steps of one size for long. What is known of
// costs stays known, and is a fair guess before.
func TestCostsOfEqualSteps(t *testing.T) {
	var c costFit
	if got := c.fit(); got != (fitted{}) {
		t.Errorf("before the first step: %+v", got)
	}
	step := func(tokens int) {
		c.add(tokens, tokens*tokens/2, time.Millisecond+time.Duration(tokens)*10*time.Microsecond)
	}
	for range 3 {
		step(100)
	}
	if got := c.fit(); got.fixed != 0 || got.token.Round(time.Microsecond) != 20*time.Microsecond {
		t.Errorf("equal steps of 2 ms and 100 tokens: %+v", got)
	}
	right := func() bool {
		f := c.fit()
		return f.fixed.Round(10*time.Microsecond) == time.Millisecond &&
			f.token.Round(100*time.Nanosecond) == 10*time.Microsecond
	}
	step(200)
	step(50)
	if !right() {
		t.Errorf("steps that differ: %+v", c.fit())
	}
	for range 5000 {
		step(512)
		if !right() {
			t.Fatalf("equal steps after them: %+v", c.fit())
		}
	}
}
