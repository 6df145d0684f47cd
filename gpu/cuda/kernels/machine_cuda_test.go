//go:build cuda

package kernels_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// The emulated driver itself: what a real one refuses, it must refuse, and what may go wrong on a
// real one must be able to go wrong here.

// emulated gives a rig on the emulated driver, or skips the test.
func emulated(t *testing.T) *rig {
	t.Helper()
	r := open(t)
	if !strings.HasPrefix(r.info.Name, "Emulated") {
		t.Skipf("on %s, not on the emulated driver", r.info.Name)
	}
	return r
}

// again runs one test in a process of its own.
func again(t *testing.T, name string, environment ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	test := exec.Command(self, "-test.run=^"+name+"$", "-test.count=1", "-test.v")
	test.Env = append(os.Environ(), environment...)
	said, err := test.CombinedOutput()
	return string(said), err
}

// TestStreamsRunInHostileOrder: with an event between two streams the second sees the first's work;
// without, every seed but 0 has it run first now and then.
func TestStreamsRunInHostileOrder(t *testing.T) {
	r := emulated(t)
	other, err := r.NewStream()
	r.must(err)
	defer r.FreeStream(other)
	done, err := r.NewEvent(false)
	r.must(err)
	const n = 1024
	missed := 0
	for try := range 40 {
		from, to := r.alloc(n), r.alloc(n)
		r.must(r.Fill(from, byte(try), n, r.stream))
		if try < 20 {
			r.must(r.Record(done, r.stream))
			r.must(r.Wait(other, done))
		}
		r.must(r.CopyWithin(to, from, n, other))
		r.must(r.Finish(other))
		same := bytes.Equal(r.down(to, n), bytes.Repeat([]byte{byte(try)}, n))
		if try < 20 && !same {
			t.Fatal("a stream did not wait for an event")
		}
		if !same {
			missed++
		}
		r.must(errors.Join(r.Free(from), r.Free(to)))
	}
	seeded := os.Getenv("ENGINE_EMULATOR_SEED")
	if seeded != "" && seeded != "0" && missed == 0 {
		t.Error("20 missing waits went unnoticed")
	}
}

// TestTheClockOverlaps: a copy beside kernels takes no time of theirs, and one behind them does.
func TestTheClockOverlaps(t *testing.T) {
	r := emulated(t)
	other, err := r.NewStream()
	r.must(err)
	defer r.FreeStream(other)
	const n = 8 << 20 // 0.15 ms on the way out, as long as 70 launches
	p := r.alloc(n)
	r.must(r.Fill(p, 1, n, r.stream))
	r.must(r.Finish(r.stream))
	took := func(copying driver.Stream) float64 {
		var marks [2]driver.Event
		for i := range marks {
			marks[i], err = r.NewEvent(true)
			r.must(err)
		}
		r.must(r.Record(marks[0], r.stream))
		r.must(r.Wait(copying, marks[0]))
		for i := range 70 {
			r.must(r.start(kernels.Fill{Dst: at(p), Count: 1}.Launch(gpu.F32)))
			if i == 10 {
				r.must(r.CopyOut(r.staging[:n], p, copying))
			}
		}
		r.must(r.Record(marks[1], r.stream))
		r.must(errors.Join(r.Finish(r.stream), r.Finish(copying)))
		ms, err := r.Elapsed(marks[0], marks[1])
		r.must(err)
		return ms
	}
	beside, between := took(other), took(r.stream)
	if beside > 0.16 || between < 0.28 {
		t.Errorf("%g ms with the copy beside, %g ms with it in between", beside, between)
	}
}

// TestGraphsReplay: captured launches do not run until they are replayed, and then each time; work
// of another stream that nobody waits for cannot be captured.
func TestGraphsReplay(t *testing.T) {
	r := emulated(t)
	x := r.upNumbers(gpu.F32, []float64{1, 2})
	one, rows := r.upNumbers(gpu.F32, []float64{1}), r.upInts([]int32{0})
	add := kernels.AddRows{Dst: at(x), X: at(x), Rows: at(rows), Factors: at(one), Count: 1,
		Width: 2}.Launch(gpu.F32) // doubles
	r.must(r.BeginCapture(r.stream))
	r.must(r.start(add, add))
	graph, err := r.EndCapture(r.stream)
	r.must(err)
	r.close("before", r.downNumbers(gpu.F32, x, 2), []float64{1, 2}, 2, 0)
	for range 3 {
		r.must(r.Replay(graph, r.stream))
	}
	r.must(r.Finish(r.stream))
	r.close("after three", r.downNumbers(gpu.F32, x, 2), []float64{64, 128}, 2, 0)
	r.must(r.FreeGraph(graph))

	other, err := r.NewStream()
	r.must(err)
	fork, err := r.NewEvent(false)
	r.must(err)
	r.must(r.BeginCapture(r.stream))
	r.must(errors.Join(r.Record(fork, r.stream), r.Wait(other, fork)))
	r.must(r.CopyWithin(x, one, 4, other))
	if _, err = r.EndCapture(r.stream); err == nil {
		t.Error("a graph with a stream that is not joined was made")
	}
	r.must(r.FreeStream(other))
}

// TestRefusals: a signature that differs, too much shared memory, blocks that are too large.
func TestRefusals(t *testing.T) {
	r := emulated(t)
	const parameter = " glu_bf16_param_3"
	ptx := strings.Replace(kernels.PTX(), ".u32"+parameter, ".u64"+parameter, 1)
	if ptx == kernels.PTX() {
		t.Fatal("the PTX has no such parameter")
	}
	if _, err := r.Load([]byte(ptx)); err == nil {
		t.Error("a kernel with another signature was loaded")
	}
	l := kernels.Fill{Dst: at(r.alloc(4)), Count: 1}.Launch(gpu.F32)
	l.Shared = 49 << 10
	if err := r.start(l); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("49 KiB of shared memory without asking: %v", err)
	}
	l.Shared, l.Block = 0, [3]uint32{512, 1, 1}
	if err := r.start(l); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("a block beyond the kernel's bound: %v", err)
	}
	l.Block, l.Grid = [3]uint32{32, 1, 1}, [3]uint32{0, 1, 1}
	if err := r.start(l); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("an empty grid: %v", err)
	}
	if _, err := r.Alloc(1 << 50); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a petabyte: %v", err)
	}
}

// TestAKernelThatTouchesFreedMemory loses the device, and the process lives on.
func TestAKernelThatTouchesFreedMemory(t *testing.T) {
	if os.Getenv("ENGINE_TEST_LOSE") == "" {
		said, err := again(t, t.Name(), "ENGINE_TEST_LOSE=1")
		if err != nil || !strings.Contains(said, "--- PASS") && !strings.Contains(said, "SKIP") {
			t.Fatalf("%v\n%s", err, said)
		}
		return
	}
	r := emulated(t)
	p := r.alloc(4096)
	r.must(r.Free(p))
	r.must(r.start(kernels.Fill{Dst: at(p), Count: 64}.Launch(gpu.F32)))
	if err := r.Finish(r.stream); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("after a write to freed memory: %v", err)
	}
	if _, err := r.Alloc(1); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("the call behind it: %v", err)
	}
	os.Exit(passed(t))
}

// passed prints what the test binary prints for a test: the rest of it needs a device.
func passed(t *testing.T) int {
	if t.Failed() {
		return 1
	}
	os.Stdout.WriteString("--- PASS: " + t.Name() + "\n")
	return 0
}

// TestPlantedFaults: each planted failure is the error that callers branch on.
func TestPlantedFaults(t *testing.T) {
	faults := map[string]error{
		"allocation=4": gpu.ErrOutOfMemory, "launch=2": driver.ErrRefused, "lost=2": gpu.ErrLost,
	}
	if planted := os.Getenv("ENGINE_EMULATOR_FAULTS"); planted != "" {
		r := emulated(t)
		var err error
		for try := 0; try < 10 && err == nil; try++ {
			var p driver.Pointer
			if p, err = r.Alloc(64); err == nil {
				err = r.start(kernels.Fill{Dst: at(p), Count: 1}.Launch(gpu.F32))
			}
			if err == nil {
				err = r.Finish(r.stream)
			}
		}
		if !errors.Is(err, faults[planted]) {
			t.Errorf("%s: %v", planted, err)
		}
		os.Exit(passed(t))
	}
	for planted := range faults {
		said, err := again(t, t.Name(), "ENGINE_EMULATOR_FAULTS="+planted)
		if err != nil || !strings.Contains(said, "--- PASS") && !strings.Contains(said, "SKIP") {
			t.Errorf("%s: %v\n%s", planted, err, said)
		}
	}
}

// TestMemoryBetweenProcesses: another process reads and writes an allocation by its handle.
func TestMemoryBetweenProcesses(t *testing.T) {
	const n = 10000
	if text := os.Getenv("ENGINE_TEST_HANDLE"); text != "" {
		r := emulated(t)
		var handle driver.ShareHandle
		_, err := hex.Decode(handle[:], []byte(text))
		r.must(err)
		p, err := r.OpenShared(handle)
		r.must(err)
		if !bytes.Equal(r.down(p, n), bytes.Repeat([]byte{7}, n)) {
			t.Error("the other process's bytes do not show")
		}
		r.must(r.Fill(p, 9, n, r.stream))
		r.must(r.Finish(r.stream))
		r.must(r.CloseShared(p))
		return
	}
	r := emulated(t)
	p := r.alloc(n)
	r.must(r.Fill(p, 7, n, r.stream))
	r.must(r.Finish(r.stream))
	handle, err := r.Share(p)
	r.must(err)
	if _, err := r.OpenShared(handle); err == nil {
		t.Error("a process opened its own allocation")
	}
	said, err := again(t, t.Name(), "ENGINE_TEST_HANDLE="+hex.EncodeToString(handle[:]))
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if !bytes.Equal(r.down(p, n), bytes.Repeat([]byte{9}, n)) {
		t.Error("what the other process wrote does not show")
	}
}
