package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/plugins/builtin"
)

// besideEnv asks TestSwapsBesideCompiler for so many swaps under a crowd with a Go module compiled
// beside, and for a bound on how long they hold up the engine: on a machine that has time.
const besideEnv = "ENGINE_TEST_SWAPS"

// The short run's swaps and streams.
const (
	besideSwaps   = 24
	besideStreams = 6
)

// besideTokens is how many tokens each stream gets between two swaps, in the mean.
const besideTokens = 10

// besideRoom is by how much the instance may grow from the first third of the swaps to the last:
// what modules that come and go leave to the garbage collector at any one time.
const besideRoom = 32 << 20

// footprint is what an instance holds at one moment.
type footprint struct{ memory, goroutines float64 }

// look waits until the streams have got tokens since the count before, then looks at the
// instance.
func (s *stage) look(before float64, streams int) (footprint, float64) {
	s.t.Helper()
	var now series
	eventually(s.t, patience, func() (err error) {
		if now, err = scrape(s.internal); err != nil {
			return err
		}
		got := now.sum("engine_generation_tokens_total") - before
		if got < float64(streams*besideTokens) {
			return fmt.Errorf("the streams got %v tokens", got)
		}
		return nil
	})
	return footprint{now.sum("process_resident_memory_bytes"), now.sum("go_goroutines")},
		now.sum("engine_generation_tokens_total")
}

// besideModule is what is compiled beside the swaps: a Go module in the long run, and what needs no
// toolchain in the short one.
func besideModule(t *testing.T, long bool) []byte {
	t.Helper()
	if !long {
		wasm, _ := builtin.Module("tenant-quota")
		return wasm
	}
	out := filepath.Join(t.TempDir(), "go.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath",
		"-ldflags=-s -w", "-o", out, "../../plugins/testdata/goguest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the Go module: %v\n%s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// bring gives the instance one module after the other that no cache knows, until ctx ends: each
// has a custom section of its own. ended hears of each compilation. One that takes too long, where
// the machine has no time for it, is stopped by the instance and counts like any other.
func (s *stage) bring(ctx context.Context, wasm []byte, ended chan<- error) {
	for n := 0; ctx.Err() == nil; n++ {
		text := fmt.Sprintf("%08d", n)
		section := append([]byte{0, byte(2 + len(text)), 1, 'x'}, text...)
		ask := admin.LoadPolicy{Name: guest, Wasm: append(slices.Clone(wasm), section...)}
		err := s.admin.call(ctx, "POST", "/policies/load", ask, &admin.Loaded{})
		if err != nil && strings.Contains(err.Error(), "compiling took longer") {
			err = nil
		}
		select {
		case ended <- err:
		case <-ctx.Done():
		}
	}
}

// besideRun is what was seen of the swaps.
type besideRun struct {
	footprints []footprint
	pauses     []time.Duration
	compiled   int
}

// swapBeside swaps until there were enough swaps, and one compilation at least ended beside.
func (s *stage) swapBeside(least, streams int, ended <-chan error) (r besideRun) {
	s.t.Helper()
	tokens := s.metric("engine_generation_tokens_total")
	for len(r.pauses) < least || r.compiled == 0 {
		var seen footprint
		seen, tokens = s.look(tokens, streams)
		policy := []string{"builtin:sjf-aging", "builtin:fcfs"}[len(r.pauses)%2]
		r.footprints = append(r.footprints, seen)
		r.pauses = append(r.pauses, s.swap(policy).Pause)
		select {
		case err := <-ended:
			if err != nil {
				s.t.Fatal(err)
			}
			r.compiled++
		default:
		}
	}
	return r
}

// flat wants the last third of the samples to be like the first.
func (r *besideRun) flat(t *testing.T) {
	third := len(r.footprints) / 3
	median := func(part []footprint, of func(footprint) float64) float64 {
		var values []float64
		for _, s := range part {
			values = append(values, of(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	grown := func(of func(footprint) float64) (first, last float64) {
		return median(r.footprints[:third], of), median(r.footprints[len(r.footprints)-third:], of)
	}
	memory, after := grown(func(s footprint) float64 { return s.memory })
	goroutines, alive := grown(func(s footprint) float64 { return s.goroutines })
	t.Logf("memory %.1f MiB, then %.1f; goroutines %v, then %v", memory/(1<<20), after/(1<<20),
		goroutines, alive)
	if after-memory > besideRoom && !raced { // The race detector remembers a while.
		t.Errorf("the instance grew by %.1f MiB", (after-memory)/(1<<20))
	}
	if alive-goroutines > crowd {
		t.Errorf("%v goroutines, and later %v", goroutines, alive)
	}
}

// TestSwapsBesideCompiler swaps modules from C and Rust under streams that never end while modules
// are compiled beside, one after the other. No request fails or changes its output, nothing grows,
// and no step is decided by anybody else. With ENGINE_TEST_SWAPS=300 a Go module is compiled, and
// the 99th percentile of the pauses, as the instance counts them, is held against 100 µs.
func TestSwapsBesideCompiler(t *testing.T) {
	least, err := strconv.Atoi(os.Getenv(besideEnv))
	streams, long := crowd, err == nil
	if !long {
		least, streams = besideSwaps, besideStreams
	}
	wasm := besideModule(t, long)
	// One thread computes, so that a machine with two cores has time for who compiles.
	n := serveNode(t, fmt.Sprintf("[scheduler]\nmax_num_seqs = %d\n[backend]\nthreads = 1\n",
		streams))
	client, err := adminTarget{n.admin, patience}.dial()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, node: n, admin: client}
	wants := s.rehearse(streams)
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	failed, times := make([]error, streams), make([]int, streams)
	for i, want := range wants {
		busy.Go(func() { times[i], failed[i] = s.sing(ctx, i, want) })
	}
	ended := make(chan error)
	busy.Go(func() { s.bring(ctx, wasm, ended) })
	for _, policy := range []string{"builtin:sjf-aging", "builtin:fcfs"} {
		s.swap(policy) // The first of each loads it.
	}
	before, err := scrape(n.internal)
	if err != nil {
		t.Fatal(err)
	}
	r := s.swapBeside(least, streams, ended)
	after, err := scrape(n.internal)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	busy.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
	r.judge(t, before, after, long)
	r.flat(t)
	t.Logf("streams begun: %v", times)
	rest(t, n)
	s.untroubled()
	n.stop()
}

// judge holds what the instance counted between two scrapes against what was done.
func (r *besideRun) judge(t *testing.T, before, after series, long bool) {
	t.Helper()
	swaps := len(r.pauses)
	slices.Sort(r.pauses)
	t.Logf("%d swaps, %d modules compiled beside: pause p50 %v, p99 %v, longest %v", swaps,
		r.compiled, r.pauses[swaps/2], r.pauses[swaps*99/100], r.pauses[swaps-1])
	const pause = "engine_policy_swap_pause_seconds"
	since := func(name string, labels ...string) float64 {
		return after.sum(name, labels...) - before.sum(name, labels...)
	}
	if got := since(pause + "_count"); got != float64(swaps) {
		t.Errorf("%v pauses are counted, want %d", got, swaps)
	}
	short := since(pause+"_bucket", `le="0.0001"`) // seconds
	t.Logf("the instance counts %v pauses of at most 100 µs", short)
	if long && short < 0.99*float64(swaps) {
		t.Errorf("%v of %d pauses were longer than 100 µs", float64(swaps)-short, swaps)
	}
}

// untroubled wants no module to have faulted and no request to have ended with an error.
func (s *stage) untroubled() {
	s.t.Helper()
	seen, err := scrape(s.internal)
	if err != nil {
		s.t.Fatal(err)
	}
	const faults = "engine_policy_faults_total"
	// How long a decision takes, and whether a compilation came to its end, says more about this
	// machine than about a module.
	if got := seen.sum(faults) - seen.sum(faults, `class="slow"`) -
		seen.sum(faults, `class="load_compile"`); got != 0 {
		s.t.Errorf("%v faults", got)
	}
	if got := seen.sum("engine_policy_fallback_steps_total"); got != 0 {
		s.t.Errorf("%v steps were decided by the built-in policy", got)
	}
	if got := seen.sum("engine_requests_finished_total", `reason="error"`); got != 0 {
		s.t.Errorf("%v requests ended with an error", got)
	}
}
