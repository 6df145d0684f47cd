package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/kvrelay/engine/host/config"
)

// TestLongerQueueGivesAScoreItsFuel: the fuel of a score that decides is by the length of the
// queue, so a reload that changes it loads the score anew; any other does not.
func TestLongerQueueGivesAScoreItsFuel(t *testing.T) {
	t.Chdir(t.TempDir())
	load := func(active string, queue, preempt int) *config.Config {
		text := fmt.Sprintf("[scheduler]\nmax_queue = %d\nmax_preempt = %d\n[policy]\n"+
			"active = %q\n[policies.s]\nscore = \"remaining_prefill\"\n", queue, preempt, active)
		if err := os.WriteFile("engine.toml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := loadConfig("engine.toml")
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	before := load("s", 4, 8)
	for _, c := range []struct {
		after *config.Config
		want  bool
	}{
		{load("s", 400, 8), true}, {load("s", 4, 9), false}, {load("builtin:fcfs", 400, 8), false},
	} {
		if got := longerScore(config.Diff(before, c.after), c.after); got != c.want {
			t.Errorf("%s, queue %d: %v", c.after.Policy.Active, c.after.Scheduler.MaxQueue, got)
		}
	}
	less, more := scoreLimits(before).Fuel, scoreLimits(load("s", 60000, 8)).Fuel
	if less >= more {
		t.Errorf("a queue of 4 has fuel %d, one of 60000 %d", less, more)
	}
}
