package plugins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// swapsEnv sets how many swaps TestSwapsBesideCompiler makes.
const swapsEnv = "ENGINE_TEST_SWAPS"

// swapsPrefixEnv is put before the compiling process's command: "chrt -o 0" where the test itself
// runs at a priority of its own.
const swapsPrefixEnv = "ENGINE_TEST_SWAPS_PREFIX"

// swapSteps is how many steps lie between two swaps.
const swapSteps = 20_000

// lengthened is a module with a custom section more, which no cache knows.
func lengthened(wasm []byte, n int) []byte {
	text := fmt.Sprintf("%08d", n)
	return append(slices.Clone(wasm), append([]byte{0, byte(2 + len(text)), 1, 'x'}, text...)...)
}

// crowd is an engine that decides without pause and an operator who brings Go modules.
type crowd struct {
	b        *bench
	stop     atomic.Bool
	due      chan struct{} // it is time for a swap
	ended    chan error
	walls    []time.Duration // of one step in 16
	steps    int
	compiled int
}

// decide is the engine.
func (c *crowd) decide() error {
	out := make([]abi.Decision, 0, 128)
	for ; !c.stop.Load(); c.steps++ {
		c.b.mock.update(64)
		begin := time.Now()
		if _, err := c.b.Decide(&c.b.mock.view, out); err != nil {
			return fmt.Errorf("step %d: %w", c.steps, err)
		}
		if c.steps%16 == 0 {
			c.walls = append(c.walls, time.Since(begin))
		}
		if c.steps%swapSteps == 0 {
			select {
			case c.due <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

// bring is the operator: no cache knows the module that comes.
func (c *crowd) bring(ctx context.Context, wasm []byte) error {
	for ; !c.stop.Load(); c.compiled++ {
		_, err := c.b.Load(ctx, Spec{Name: "go", Wasm: lengthened(wasm, c.compiled)})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestSwapsBesideCompiler swaps C and Rust modules while steps are decided without pause and a Go
// module is compiled beside, again and again: every step is a module's, the pauses are short, and
// the process stays as large as it was. The bounds hold on a machine that has time.
func TestSwapsBesideCompiler(t *testing.T) {
	swaps, err := strconv.Atoi(os.Getenv(swapsEnv))
	if err != nil {
		t.Skipf("it takes a minute: %s=300", swapsEnv)
	}
	t.Setenv(compileEnv, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := append(strings.Fields(os.Getenv(swapsPrefixEnv)), self, "-test.run=^$")
	b := newBenchWith(t, Options{CacheDir: filepath.Join(t.TempDir(), "policies"),
		Compiler: command, FaultDir: t.TempDir()})
	names := []string{"fcfs", "sjf-aging"}
	b.load(names[1], shipped(t, names[1]))
	b.use(names[0], shipped(t, names[0]))
	b.mock.fill(1000)
	c := crowd{b: b, due: make(chan struct{}, 1), ended: make(chan error, 2),
		walls: make([]time.Duration, 0, swaps*swapSteps/8)}
	wasm := goSeed(t, filepath.Join(t.TempDir(), "go.wasm")).wasm
	go func() { c.ended <- c.bring(t.Context(), wasm) }()
	go func() { c.ended <- c.decide() }()
	var pauses []time.Duration
	var sizes []int
	for i := range swaps {
		<-c.due
		sizes = append(sizes, resident())
		swap, err := b.Activate(names[(i+1)%2])
		if err != nil {
			t.Fatal(err)
		}
		pauses = append(pauses, swap.Pause)
	}
	c.stop.Store(true)
	for range 2 {
		if err := <-c.ended; err != nil {
			t.Fatal(err)
		}
	}
	c.judge(t, pauses, sizes)
}

// judge tells of a run and holds it against its bounds.
func (c *crowd) judge(t *testing.T, pauses []time.Duration, sizes []int) {
	third := len(sizes) / 3
	first, last := sizes[:third], sizes[len(sizes)-third:]
	slices.Sort(first)
	slices.Sort(last)
	grown := last[third/2] - first[third/2] // What waits for the collector comes and goes.
	slices.Sort(pauses)
	slices.Sort(c.walls)
	at := func(d []time.Duration, of, n int) time.Duration { return d[len(d)*n/of] }
	t.Logf("%d swaps: pause p50 %v, p99 %v, longest %v", len(pauses), at(pauses, 100, 50),
		at(pauses, 100, 99), pauses[len(pauses)-1])
	t.Logf("%d steps: p50 %v, p99 %v, p99.99 %v; %d Go modules compiled; grown by %d KiB", c.steps,
		at(c.walls, 100, 50), at(c.walls, 100, 99), at(c.walls, 10_000, 9_999), c.compiled,
		grown>>10)
	if p99 := at(pauses, 100, 99); p99 > 100*time.Microsecond {
		t.Errorf("the pause's 99th percentile is %v", p99)
	}
	if grown > 16<<20 || c.compiled == 0 {
		t.Errorf("grown by %d bytes beside %d compilations", grown, c.compiled)
	}
}
