package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/bench"
)

// servingRounds is such a comparison under way.
type servingRounds struct {
	*benchServing
	subject *bench.Subject
	shape   bench.Case
	folder  string
	client  *bench.Client
	stream  *kvStream // nil: nothing is carried beside it
	// cycles is how many requests each stream has in a round. One: the rates are those of
	// generation, while all streams are under way. More, at least bench.LeastCycles: they are those
	// of whole requests, each followed by the next, prompts included.
	cycles int
}

const (
	// leastWindow is how long a round measures at least: shorter ones tell of the system's turns.
	leastWindow = time.Second
	// mostCycles bounds the requests of a stream in a round.
	mostCycles = 4096
)

// errNotAtOnce: some stream had ended before another began.
var errNotAtOnce = errors.New("the streams were never all under way at once")

// choose finds how many requests a stream needs for a window that is long enough, and warms up.
func (r *servingRounds) choose(ctx context.Context, out io.Writer) error {
	rate, err := r.subject.Once(r.shape, 0)
	if err != nil {
		return err
	}
	once := float64(r.plan.Streams*r.plan.Out) / rate // seconds
	least := cmp.Or(r.least, leastWindow).Seconds()
	if r.cycles = 1; once >= least {
		if _, err = r.once(ctx, 0); !errors.Is(err, errNotAtOnce) {
			return err
		}
	}
	r.whole(least / once)
	fmt.Fprintf(out, "%s of %d tokens end too soon to be measured under way: %d a stream, one "+
		"after the other, their prompts included\n", plural(r.plan.Streams, "stream"), r.plan.Out,
		r.cycles)
	_, err = r.once(ctx, 0)
	return err
}

// whole makes it whole requests, so many between the first and the last of a stream.
func (r *servingRounds) whole(between float64) {
	r.cycles = min(max(bench.LeastCycles, int(math.Ceil(between))+2), mostCycles)
}

// bare is the rate of the model's bare loop on what a round serves.
func (r *servingRounds) bare(seed uint64) (float64, error) {
	if r.cycles == 1 {
		return r.subject.Once(r.shape, seed)
	}
	// The prompt gives the first token.
	c := bench.Case{Prompt: r.plan.In, Generate: r.plan.Out - 1, Batch: r.plan.Streams}
	once, seconds := *r.subject, 0.0
	once.Least = 0 // All cycles together last long enough.
	for cycle := range r.cycles {
		rate, err := once.Once(c, seed+uint64(cycle)<<32)
		if err != nil {
			return 0, err
		}
		seconds += float64(r.plan.Streams*(c.Prompt+c.Generate)) / rate
	}
	return float64(r.cycles*r.plan.Streams*r.plan.Out) / seconds, nil
}

func (r *servingRounds) run(ctx context.Context, out io.Writer) ([]bench.Serving, error) {
	bar := newBenchBar(out, "round", r.repeat+1)
	bar.silent = true
	defer bar.end()
	var rounds []bench.Serving
	if err := r.choose(ctx, bar); err != nil {
		return nil, err
	}
	for round := 1; round <= r.repeat; round++ {
		bar.set(round)
		s, err := r.once(ctx, uint64(round))
		if errors.Is(err, errNotAtOnce) && r.cycles == 1 {
			fmt.Fprintf(bar, "%v: measuring whole requests from the first round on\n", err)
			r.whole(1)
			rounds, round = nil, 0
			continue
		}
		if err != nil {
			return nil, err
		}
		bar.set(round + 1)
		rounds = append(rounds, s)
		beside := ""
		if r.stream != nil {
			beside = fmt.Sprintf("   beside %.1f MB/s of transfer %9.2f", s.Carried/1e6, s.Beside)
		}
		fmt.Fprintf(bar, "round %d/%d  bare %9.2f tok/s   served %9.2f   %5.1f %%%s   generator "+
			"%.1f %% of the processors%s\n", round, r.repeat, s.Bare, s.Served, 100*s.Ratio(),
			beside, 100*s.Generator, shortWords(s.Window))
	}
	return rounds, nil
}

// shortWords warn of a window in which the system's turns weigh more than the engine.
func shortWords(window time.Duration) string {
	if window >= leastWindow/4 {
		return ""
	}
	return fmt.Sprintf("   measured %v alone, too short to judge: more --out or --streams",
		window.Round(time.Millisecond))
}

// once is a round.
func (r *servingRounds) once(ctx context.Context, seed uint64) (s bench.Serving, err error) {
	if s.Bare, err = r.bare(seed); err != nil {
		return s, err
	}
	before, _ := r.client.Series(ctx)
	load, generator, err := r.drive(ctx, seed)
	if err != nil {
		return s, err
	}
	s.Served, s.Window, s.Generator = r.rate(load), load.Window, generator
	after, _ := r.client.Series(ctx)
	s.Stages = bench.StageShares(before, after)
	if r.stream != nil {
		s.Carried, err = r.stream.beside(ctx, func() (err error) {
			// Other prompts: the engine has kept the pages of these.
			load, _, err := r.drive(ctx, seed|1<<32)
			if err == nil {
				s.Beside = r.rate(load)
			}
			return err
		})
	}
	return s, err
}

// rate is that of a load which a round's bare loop compares with.
func (r *servingRounds) rate(load *bench.Load) float64 {
	if r.cycles == 1 {
		return load.Steady
	}
	return load.Whole
}

// drive loads the engine from a process of its own and waits for its end: what came of it, and the
// part of the processors that the load took.
func (r *servingRounds) drive(
	ctx context.Context, seed uint64,
) (outcome *bench.Load, generator float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	o, file := r.benchServing, filepath.Join(r.folder, "load.json")
	args := []string{self, "bench", "--url", r.client.Base, "--warmup", "0", "--json", file,
		"--streams", strconv.Itoa(o.plan.Streams), "--requests",
		strconv.Itoa(r.cycles * o.plan.Streams),
		"--in", strconv.Itoa(o.plan.In), "--out", strconv.Itoa(o.plan.Out),
		"--seed", strconv.FormatUint(seed, 10)}
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice, "-n", generatorNice}, args...)
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	asksToEnd(command)
	// One processor: what it looks for others to run its goroutines on is taken from the engine.
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	begun := time.Now()
	if text, err := command.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("the load generator: %w: %.500s", err, text)
	}
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	generator = used.Seconds() / time.Since(begun).Seconds() / float64(runtime.NumCPU())
	load, err := bench.Read(file)
	switch {
	case err != nil:
		return nil, 0, err
	case load.Load == nil:
		return nil, 0, fmt.Errorf("the load generator saved a %s in place of a load", load.Kind)
	case load.Load.Failed > 0:
		return nil, 0, fmt.Errorf("%d of %s failed: %s", load.Load.Failed,
			plural(load.Load.Requests, "request"), strings.Join(load.Load.Errors, "; "))
	case r.rate(load.Load) == 0:
		return nil, 0, errNotAtOnce
	}
	return load.Load, generator, nil
}
