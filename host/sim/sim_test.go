package sim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("seed", 1, "first seed")
	seeds = flag.Uint64("seeds", defaultSeeds, "number of seeds; ENGINE_SIM_SEEDS does the same")
)

// Of defaultSeeds every one is run; where they have not reached each mark, more are, up to
// mostSeeds.
const (
	defaultSeeds = 300
	mostSeeds    = 3000
)

// TestSeeds runs a world for each seed. A failure prints the seed and how to run it alone; then the
// world is made smaller as long as it still fails, and what happened in it is printed.
func TestSeeds(t *testing.T) {
	count := *seeds
	if n, err := strconv.ParseUint(os.Getenv("ENGINE_SIM_SEEDS"), 10, 64); err == nil {
		count = n
	}
	var sum Outcome
	ran := 0
	began := time.Now()
	reached := func() bool { return count < defaultSeeds || !slices.Contains(sum.Counts[:], 0) }
	for s := *seed; s < *seed+count || s < *seed+mostSeeds && !reached(); s++ {
		c := Random(s)
		out, err := Run(c)
		if err != nil {
			replay(t, c)
			t.Fatalf("%v\nrun it alone: go test ./host/sim -run TestSeeds -seeds 1 -seed %d -v",
				err, s)
		}
		sum.Counts.Add(&out.Counts)
		sum.Tokens += out.Tokens
		sum.Answered += out.Answered
		sum.Failed += out.Failed
		sum.Events += out.Events
		sum.Lasted += out.Lasted
		ran++
	}
	t.Logf("%d seeds: %d requests answered, %d not, %d tokens, %d events, %v of virtual time in %v",
		ran, sum.Answered, sum.Failed, sum.Tokens, sum.Events, sum.Lasted.Round(time.Second),
		time.Since(began).Round(time.Millisecond))
	for _, m := range AllMarks() {
		t.Logf("%9d %v", sum.Counts[m], m)
		if !reached() && sum.Counts[m] == 0 {
			t.Errorf("no seed reached: %v", m)
		}
	}
}

// replay runs a smaller world that still fails and prints the last things that happened in it.
func replay(t *testing.T, c Config) {
	c, err := Shrink(c)
	t.Logf("%d instances, %d clients and the faults %v are enough for: %v",
		len(c.Instances), len(c.Requests), c.Faults, err)
	for _, line := range story(c) {
		t.Log(line)
	}
}

// story is what happens in a world, the last 200 lines of it.
func story(c Config) []string {
	var lines []string
	c.Trace = func(at time.Duration, what string) {
		lines = append(lines, fmt.Sprintf("%14v %s", at, what))
	}
	if _, err := Run(c); err != nil {
		lines = append(lines, err.Error())
	}
	return lines[max(0, len(lines)-200):]
}

// TestRunsRepeat: equal worlds run alike to the last event.
func TestRunsRepeat(t *testing.T) {
	for s := *seed; s < *seed+20; s++ {
		first, err := Run(Random(s))
		if err != nil {
			t.Fatal(err)
		}
		second, _ := Run(Random(s))
		if first != second {
			t.Fatalf("seed %d: two runs differ: %+v and %+v", s, first, second)
		}
		if one, other := story(Random(s)), story(Random(s)); !slices.Equal(one, other) {
			t.Fatalf("seed %d: two runs tell different stories", s)
		}
	}
}
