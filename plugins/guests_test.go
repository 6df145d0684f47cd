package plugins

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/builtin"
)

// guestFile reads one of the small guests in testdata.
func guestFile(t testing.TB, name string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// shipped reads one of the policies in the binary.
func shipped(t testing.TB, name string) []byte {
	t.Helper()
	wasm, ok := builtin.Module(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	return wasm
}

// recorder is an observer that keeps what it hears.
type recorder struct {
	mu      sync.Mutex
	calls   int
	last    Call
	fell    int
	faults  []*Fault
	swaps   []Swap
	dropped int
}

func (r *recorder) Stepped(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.last = c
	if c.Fallback {
		r.fell++
	}
}

func (r *recorder) Faulted(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

func (r *recorder) Swapped(s Swap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swaps = append(r.swaps, s)
}

func (r *recorder) LogDropped(_ string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped += n
}

// buffer is a log that many may write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// bench is a host with a table, an observer and a log.
type bench struct {
	*Host
	t    testing.TB
	seen *recorder
	log  *buffer
	mock *mock
	out  []abi.Decision
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchWith(t, Options{})
}

// newBenchWith is a bench whose host has options of its own.
func newBenchWith(t testing.TB, o Options) *bench {
	t.Helper()
	b := &bench{t: t, seen: &recorder{}, log: &buffer{}}
	o.Slots, o.Decisions, o.Observer = 1000, 128, b.seen
	o.Log = slog.New(slog.NewTextHandler(b.log, nil))
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	b.Host, b.mock = h, newMock(128)
	b.mock.view.Header.NowNS = int64(time.Hour) // Long after the guests' quiet first second.
	b.mock.fill(40)
	return b
}

// use loads a module and makes it active.
func (b *bench) use(name string, wasm []byte) {
	b.t.Helper()
	if _, err := b.Load(b.t.Context(), Spec{Name: name, Wasm: wasm}); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.Activate(name); err != nil {
		b.t.Fatal(err)
	}
}

// decide decides one step of the bench's table, in which n slots changed.
func (b *bench) decide(n int) ([]abi.Decision, error) {
	b.mock.change(n)
	out, err := b.Decide(&b.mock.view, b.out)
	b.out = out
	return out, err
}

// settle waits until the active module has its spare, or knows why it has none.
func (b *bench) settle() {
	b.order.builders.Wait()
}

// asFault demands that an error is a fault of the given class.
func asFault(t testing.TB, err error, class abi.FaultClass) *Fault {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a fault of class %s", err, class)
	}
	if f.Class != class {
		t.Fatalf("got %v, want class %s", f, class)
	}
	return f
}

// refusedGuests lists the guests that no host loads: class, and words of the reason.
var refusedGuests = []struct {
	name  string
	class abi.FaultClass
	words string
}{
	{"missing_export", abi.FaultLoadLink, `P030: the export "pol_decide" is missing: (func (`},
	{"wrong_signature", abi.FaultLoadLink, `(func (i32 i32) i32), the ABI says (func (i32) i32)`},
	{"memory_as_function", abi.FaultLoadLink, `"memory" is not a memory`},
	{"wrong_version", abi.FaultLoadLink, `"pol_abi_v1" is missing`},
	{"newer_host", abi.FaultLoadInit, "needs a host of version 1.9"},
	{"requires_swap", abi.FaultLoadInit, "2 (swap), 8 (adapter)"},
	{"foreign_import", abi.FaultLoadLink, `P014: unknown import "pol_v1.queue_peek" (func (i32)`},
	{"import_type", abi.FaultLoadLink, `"pol_v1.log" is (func (i32 i32)), the host offers`},
	{"imported_memory", abi.FaultLoadLint, "brings its own memory"},
	{"descriptor_outside", abi.FaultLoadInit, "lies outside the memory"},
	{"no_descriptor", abi.FaultLoadInit, "magic is 0x0"},
	{"region_refused", abi.FaultLoadInit, "region 1 of 128000 bytes: refused"},
	{"region_outside", abi.FaultLoadInit, "lies outside the memory"},
	{"region_wraps", abi.FaultLoadInit, "lies outside the memory"},
	{"region_unaligned", abi.FaultLoadInit, "not a multiple of 16"},
	{"region_overlaps", abi.FaultLoadInit, "overlaps region 0"},
	{"init_error", abi.FaultLoadInit, "it returned -4 (bad_config): max_age must be a number"},
	{"init_loop", abi.FaultLoadInit, "fuel: the fuel was used up"},
	{"init_recursion", abi.FaultLoadInit, "stack: stack overflow"},
	{"start_loop", abi.FaultLoadInit, "unreachable"},
	{"start_trap", abi.FaultLoadInit, "unreachable"},
	{"large_memory", abi.FaultLoadLint, "begins with 300 pages"},
	{"trap_at_once", abi.FaultTrap, "on a made-up table (no request): unreachable"},
}

func TestRefusedGuests(t *testing.T) {
	b := newBench(t)
	limits := Limits{InitFuel: 20_000_000} // 500 million take a second.
	for _, c := range refusedGuests {
		if c.name == "init_recursion" {
			continue // See TestDeepRecursion.
		}
		spec := Spec{Name: c.name, Wasm: guestFile(t, c.name), Limits: limits}
		_, err := b.Load(t.Context(), spec)
		f := asFault(t, err, c.class)
		if !strings.Contains(f.Error(), c.words) {
			t.Errorf("%s: %v\nlacks %q", c.name, f, c.words)
		}
	}
	if n := len(b.List()); n != 0 {
		t.Errorf("%d modules are listed", n)
	}
	if !strings.Contains(b.log.String(), "class=load_link") {
		t.Errorf("the log does not tell of refusals")
	}
}

// faultyGuests lists the guests that fault in a step, which their trial at load does not show.
var faultyGuests = []struct {
	name  string
	class abi.FaultClass
	words string
}{
	{"trap", abi.FaultTrap, "unreachable"},
	{"divides_by_zero", abi.FaultTrap, "integer divide by zero in $4: no request has weight"},
	{"loop", abi.FaultFuel, "used up"},
	{"recursion", abi.FaultFuel, "used up"},
	{"branching", abi.FaultFuel, "used up"},
	{"fills", abi.FaultFuel, "used up"},
	{"memory_grab", abi.FaultFuel, "used up"},
	{"reads_outside", abi.FaultTrap, "out of bounds memory access"},
	{"oversized_answer", abi.FaultBadOutput, "129 decisions were returned; at most 128"},
	{"huge_answer", abi.FaultBadOutput, "2147483647 decisions"},
	{"returns_error", abi.FaultReturnedError, "it returned -1001: weights do not add up"},
	{"bad_last_error", abi.FaultReturnedError, "it returned -1 (unspecified)"},
	{"endless_last_error", abi.FaultReturnedError, "it returned -1 (unspecified)"},
	{"log_outside", abi.FaultTrap, "lie outside the memory"},
	{"log_loop", abi.FaultFuel, "used up"},
	{"logs", abi.FaultFuel, ""},
	{"aborts", abi.FaultTrap, "abort: No heap! (p.ts:41:7)"},
}

func TestFaultyGuests(t *testing.T) {
	for _, c := range faultyGuests {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.use(c.name, guestFile(t, c.name))
			_, err := b.decide(3)
			if c.name == "logs" && err == nil {
				return // Its thousand lines fit into the fuel of a first step.
			}
			f := asFault(t, err, c.class)
			if !strings.Contains(f.Detail, c.words) {
				t.Errorf("%q lacks %q", f.Detail, c.words)
			}
			if f.Step != b.mock.view.Header.Step || f.Policy != c.name+"@1.0.0" {
				t.Errorf("the fault is of %s at step %d", f.Policy, f.Step)
			}
			b.seen.mu.Lock()
			defer b.seen.mu.Unlock()
			if len(b.seen.faults) != 1 || b.seen.faults[0] != f || b.seen.fell != 1 {
				t.Errorf("observed: %+v", b.seen)
			}
			if !strings.Contains(b.log.String(), "class="+string(c.class)) {
				t.Errorf("the log says %s", b.log)
			}
		})
	}
}

// sharedDir finds the data that lies beside the repository, or skips the test.
func sharedDir(t testing.TB) string {
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared")
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %v", err)
		}
		t.Skipf("shared data not found: %v", err)
	}
	return dir
}

// TestHostileModules offers a running host the modules that kill the bare runtime. It refuses each
// and goes on deciding.
func TestHostileModules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t), "prototypes", "wasm", "bad", "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no hostile modules: %v", err)
	}
	b := newBench(t)
	b.use("fcfs", shipped(t, "fcfs"))
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f *Fault
		if _, err := b.Load(t.Context(), Spec{Name: "bad", Wasm: wasm}); !errors.As(err, &f) {
			t.Errorf("%s: %v", file, err)
		}
		if r := Check(t.Context(), wasm, nil, Limits{}); r.OK() {
			t.Errorf("%s: nothing is wrong with it", file)
		}
		if _, err := b.decide(3); err != nil {
			t.Fatalf("after %s: %v", file, err)
		}
	}
}

// TestBadAnswers: these guests write what the host can read and no scheduler may accept.
func TestBadAnswers(t *testing.T) {
	for name, words := range map[string]string{
		"garbage": "the table has 40 slots", "unknown_slot": "slot 40: the table has 40 slots",
		"repeated_slot": "listed twice", "wrong_id": "id_low is", "preempts": "needs capability 1",
		"zero_tokens": "0 tokens",
	} {
		b := newBench(t)
		b.use(name, guestFile(t, name))
		out, err := b.decide(3)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, granted, _ := b.Answered()
		bad := new(abi.Judge).Check(&b.mock.view, out, granted)
		if bad == nil || !strings.Contains(bad.Error(), words) {
			t.Errorf("%s: judged %v, want %q", name, bad, words)
			continue
		}
		before := b.order.current
		b.ReportFault(abi.FaultBadOutput, bad.Error())
		b.ReportFault(abi.FaultBadOutput, "twice")
		if b.order.current == before || len(b.seen.faults) != 1 {
			t.Errorf("%s: after the report: sandbox %p, faults %v", name, before, b.seen.faults)
		}
	}
}

// TestSoundGuests: what is odd but no fault stays.
func TestSoundGuests(t *testing.T) {
	for _, name := range []string{"quiet", "start", "over_budget", "waiting_only", "greets"} {
		b := newBench(t)
		b.use(name, guestFile(t, name))
		for range 20 {
			out, err := b.decide(5)
			if err == nil {
				err = Judge(&b.mock.view, out)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestGreeting: a guest can log at load, knows the level, and knows what it was granted.
func TestGreeting(t *testing.T) {
	b := newBench(t)
	b.use("greets", guestFile(t, "greets"))
	want := `policy=greets@1.0.0 line="hello ` + "\uFFFD" + `, granted 1"`
	if !strings.Contains(b.log.String(), want) {
		t.Errorf("the log says %s", b.log)
	}
}

func silence() *slog.Logger { return slog.New(slog.DiscardHandler) }
