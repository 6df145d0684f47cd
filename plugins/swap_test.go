package plugins

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// planted makes a queue of waiting requests whose order of arrival is the reverse of their order by
// length.
func (b *bench) planted(n int) {
	b.mock.fill(0)
	b.mock.view.Header.TokenBudget, b.mock.view.Header.ChunkAlign = 1<<20, 1
	b.mock.view.Header.ChunkMax = 1 << 20
	for i := range n {
		r := abi.Record{
			ID: uint64(1000 + i), ArrivalNS: b.mock.view.Header.NowNS - int64(n-i),
			State: abi.StateLive, PromptTokens: uint32(16 * (n - i)),
			RemainingPrefill: uint32(16 * (n - i)), MaxNew: 10,
		}
		b.mock.view.Records = append(b.mock.view.Records, r)
		b.mock.view.Changed = append(b.mock.view.Changed, uint32(i))
	}
	b.mock.count()
}

// order is the slots of an answer.
func order(out []abi.Decision) []uint32 {
	var slots []uint32
	for _, d := range out {
		slots = append(slots, d.Slot)
	}
	return slots
}

// TestSwapOrder: after each swap the very first step's order is the new policy's.
func TestSwapOrder(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"fcfs", "sjf-aging"} {
		if _, err := b.Load(t.Context(), Spec{Name: name, Wasm: shipped(t, name)}); err != nil {
			t.Fatal(err)
		}
	}
	b.planted(12)
	forward := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	for i := range 200 {
		name, want := "fcfs", forward
		if i%2 == 1 {
			name, want = "sjf-aging", backward
		}
		swap, err := b.Activate(name)
		if err != nil || swap.Number != uint64(i+1) || swap.To != name+"@1.0.0" {
			t.Fatalf("%+v: %v", swap, err)
		}
		for range 2 {
			out, err := b.decide(0)
			if err != nil || !slices.Equal(order(out), want) {
				t.Fatalf("swap %d to %s: %v, want %v (%v)", i, name, order(out), want, err)
			}
		}
	}
	if n := len(b.seen.swaps); n != 200 || len(b.seen.faults) != 0 {
		t.Errorf("%d swaps, faults %v", n, b.seen.faults)
	}
}

// listed is the list in short: name, generation, state.
func (b *bench) listed() string {
	var list []string
	for _, s := range b.List() {
		list = append(list, fmt.Sprintf("%s#%d %s", s.Name, s.Generation, s.State))
	}
	return strings.Join(list, ", ")
}

func TestPlaces(t *testing.T) {
	b := newBench(t)
	quiet := guestFile(t, "quiet")
	load := func(name string) {
		t.Helper()
		if _, err := b.Load(t.Context(), Spec{Name: name, Wasm: quiet}); err != nil {
			t.Fatal(err)
		}
	}
	ok := func(_ Swap, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(list string) {
		t.Helper()
		if got := b.listed(); got != list {
			t.Fatalf("listed %s\nwant   %s", got, list)
		}
	}
	if _, err := b.decide(1); err != ErrNoPolicy {
		t.Errorf("got %v", err)
	}
	if _, err := b.Rollback(); err == nil {
		t.Error("rolled back to nothing")
	}
	load("a")
	load("a")
	want("a#2 ready")
	ok(b.Activate("a"))
	load("a")
	want("a#2 active, a#3 ready")
	load("b")
	ok(b.Activate("a"))
	want("a#2 previous, a#3 active, b#4 ready")
	ok(b.Activate("b"))
	want("a#3 previous, b#4 active")
	ok(b.Rollback())
	want("a#3 active, b#4 previous")
	ok(b.Rollback())
	want("a#3 previous, b#4 active")
	if b.Unload("b") == nil || b.Unload("c") == nil {
		t.Error("unloaded what it must not")
	}
	if err := b.Unload("a"); err != nil {
		t.Fatal(err)
	}
	want("b#4 active")
	if _, err := b.Rollback(); err == nil {
		t.Error("rolled back to what was unloaded")
	}
	for i := range MaxModules {
		_, err := b.Load(t.Context(), Spec{Name: strconv.Itoa(i), Wasm: quiet})
		if (err != nil) != (i == MaxModules-1) {
			t.Errorf("module %d: %v", i, err)
		}
	}
}

// TestHammer decides without pause while modules are loaded, swapped, rolled back, reported and
// listed by others, some of them faulty. Every answer is sound or an error, and the race detector
// finds nothing.
func TestHammer(t *testing.T) {
	b := newBench(t)
	modules := map[string][]byte{
		"fcfs": shipped(t, "fcfs"), "trap": guestFile(t, "trap"),
		"quiet": guestFile(t, "quiet"), "oversized_answer": guestFile(t, "oversized_answer"),
	}
	b.use("fcfs", modules["fcfs"])
	stop := make(chan struct{})
	var others sync.WaitGroup
	var steps, answers int
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			out, err := b.decide(3)
			steps++
			if err != nil {
				runtime.Gosched()
				continue
			}
			answers++
			if err := Judge(&b.mock.view, out); err != nil {
				t.Error(err)
			}
			if steps%50 == 0 {
				b.ReportFault(abi.FaultBadOutput, "for the test")
			}
		}
	})
	for i := range 20 {
		for name, wasm := range modules {
			if _, err := b.Load(t.Context(), Spec{Name: name, Wasm: wasm}); err != nil {
				t.Error(err)
			}
			if _, err := b.Activate(name); err != nil {
				t.Error(err)
			}
			if i%3 == 0 {
				_, _ = b.Rollback()
			}
			b.List()
		}
	}
	close(stop)
	others.Wait()
	t.Logf("%d steps, %d answers, %d faults", steps, answers, len(b.seen.faults))
	if answers == 0 {
		t.Error("nothing was ever decided")
	}
}

// resident is this process's memory in use, bytes; 0 where the system does not say.
func resident() int {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.Atoi(strings.Fields(string(raw))[1])
	return pages * os.Getpagesize()
}

// TestNoLeak loads and swaps hundreds of times: the process stays as large as it was, and no
// goroutine is left.
func TestNoLeak(t *testing.T) {
	if testing.Short() {
		t.Skip("300 loads")
	}
	b := newBench(t)
	names := []string{"fcfs", "waiting_only"}
	wasm := [][]byte{shipped(t, names[0]), guestFile(t, names[1])}
	cycle := func(n int) {
		for i := range n {
			b.use(names[i%2], wasm[i%2])
			if _, err := b.decide(5); err != nil {
				t.Fatal(err)
			}
			b.closing.Wait()
		}
		b.settle()
		debug.FreeOSMemory()
	}
	cycle(40)
	before, goroutines := resident(), runtime.NumGoroutine()
	cycle(300)
	after := resident()
	t.Logf("%d MiB before, %d MiB after 300 swaps", before>>20, after>>20)
	if after > before+16<<20 {
		t.Errorf("the process grew from %d to %d bytes", before, after)
	}
	if left := runtime.NumGoroutine(); left > goroutines {
		t.Errorf("%d goroutines, %d before", left, goroutines)
	}
	var pauses []time.Duration
	for _, s := range b.seen.swaps {
		pauses = append(pauses, s.Pause)
	}
	slices.Sort(pauses)
	n := len(pauses)
	t.Logf("pause of %d swaps: median %v, 99 %% within %v, longest %v", n, pauses[n/2],
		pauses[n-1-n/100], pauses[n-1])
}
