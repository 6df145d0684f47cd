package plugins

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// sameTable checks the guest's memory against the view, field by field of the ABI.
func sameTable(t *testing.T, s *sandbox, v *abi.View, flags uint32) {
	t.Helper()
	var h abi.Header
	raw, _ := s.bytes(abi.BufferHeader)
	if err := h.Decode(raw); err != nil {
		t.Fatal(err)
	}
	if h.Flags != flags || h.Step != v.Header.Step || h.Magic != abi.Magic ||
		h.RecordStride != abi.RecordSize || h.DecisionStride != abi.DecisionSize {
		t.Fatalf("header %+v, want flags %d, step %d", h, flags, v.Header.Step)
	}
	at := func(ptr uint32, size int) []byte {
		b, ok := s.memory.Read(ptr, uint32(size))
		if !ok {
			t.Fatalf("%d bytes at %#x lie outside", size, ptr)
		}
		return b
	}
	var want []uint32
	if flags&abi.FlagResync == 0 {
		want = v.Changed
	}
	raw = make([]byte, abi.RecordSize)
	for slot := range v.Header.NSlots {
		r := v.Records[slot]
		r.Encode(raw)
		if !bytes.Equal(raw, at(h.RecordsPtr+slot*abi.RecordSize, abi.RecordSize)) {
			t.Fatalf("step %d: slot %d is not the host's", v.Header.Step, slot)
		}
		if flags&abi.FlagResync != 0 && r.State != 0 {
			want = append(want, slot)
		}
	}
	var got []uint32
	list := at(h.ChangedPtr, 4*int(h.NChanged))
	for i := 0; i < len(list); i += 4 {
		got = append(got, binary.LittleEndian.Uint32(list[i:]))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("changed list %v, want %v", got, want)
	}
}

// TestResidentTable changes the table at random and finds the guest's equal after every step, with
// resyncs after a swap and after steps the guest did not see.
func TestResidentTable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t)
	b.use("quiet", guestFile(t, "quiet"))
	b.mock.fill(0)
	size := 0
	want := uint32(abi.FlagResync | abi.FlagSwap)
	for range 300 {
		if size < 900 && chance.IntN(3) == 0 { // New slots at the end.
			b.mock.change(0)
			for range 1 + chance.IntN(30) {
				b.mock.view.Records = append(b.mock.view.Records, b.mock.request(0))
				b.mock.view.Changed = append(b.mock.view.Changed, uint32(size))
				size++
			}
			b.mock.view.Header.NSlots = uint32(size)
		} else {
			b.mock.change(chance.IntN(20))
			if n := len(b.mock.view.Changed); n > 0 { // One of them is freed.
				b.mock.view.Records[b.mock.view.Changed[chance.IntN(n)]] = abi.Record{}
			}
		}
		if chance.IntN(10) == 0 { // The guest does not see this step.
			b.order.current.stale = true
			want |= abi.FlagResync
			continue
		}
		if _, err := b.Decide(&b.mock.view, nil); err != nil {
			t.Fatal(err)
		}
		sameTable(t, b.order.current, &b.mock.view, want)
		want = 0
	}
}

func TestTableErrors(t *testing.T) {
	b := newBench(t)
	b.use("quiet", guestFile(t, "quiet"))
	for name, spoil := range map[string]func(v *abi.View){
		"too many slots":       func(v *abi.View) { v.Header.NSlots = 1001 },
		"fewer records":        func(v *abi.View) { v.Header.NSlots = uint32(len(v.Records)) + 1 },
		"changed out of range": func(v *abi.View) { v.Changed = []uint32{v.Header.NSlots} },
		"changed twice":        func(v *abi.View) { v.Changed = []uint32{1, 1} },
	} {
		if _, err := b.decide(1); err != nil {
			t.Fatal(err)
		}
		v := b.mock.view
		spoil(&v)
		if _, err := b.Decide(&v, nil); err != ErrTable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(b.seen.faults); n != 0 {
		t.Errorf("the guest is blamed %d times", n)
	}
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	sameTable(t, b.order.current, &b.mock.view, abi.FlagResync)
}

// TestRecovery: a fault costs one step; the spare goes on at the next, with a resync and no swap.
func TestRecovery(t *testing.T) {
	b := newBench(t)
	b.use("quiet", guestFile(t, "quiet"))
	b.settle()
	for range 5 {
		if _, err := b.decide(1); err != nil {
			t.Fatal(err)
		}
	}
	first, spare := b.order.current, b.order.spare
	b.ReportFault(abi.FaultBadOutput, "for the test")
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	if b.order.current != spare || spare == first || spare == nil {
		t.Error("the spare did not take over")
	}
	sameTable(t, spare, &b.mock.view, abi.FlagResync)
	b.settle()
	if b.order.spare == nil {
		t.Error("there is no new spare")
	}
}

// TestWarming: without a spare the step is the built-in policy's, and nothing waits.
func TestWarming(t *testing.T) {
	b := newBench(t)
	b.use("quiet", guestFile(t, "quiet"))
	b.settle()
	b.order.spare.close()
	b.order.spare, b.order.building = nil, true // As if it were being made.
	b.ReportFault(abi.FaultBadOutput, "ignored: nothing was answered")
	b.order.current.close()
	b.order.current = nil
	if _, err := b.decide(1); err != ErrWarming {
		t.Fatalf("got %v", err)
	}
	b.order.building = false
	if _, err := b.decide(1); err != ErrWarming {
		t.Fatalf("got %v", err)
	}
	b.settle()
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	if len(b.seen.faults) != 0 {
		t.Errorf("faults: %v", b.seen.faults)
	}
}

// TestInconsistent: code -6 gets the guest one resync; a second one in a row is an ordinary error.
func TestInconsistent(t *testing.T) {
	b := newBench(t)
	b.use("inconsistent_once", guestFile(t, "inconsistent_once"))
	if _, err := b.decide(1); err != nil {
		t.Fatal(err) // The first step is a resync.
	}
	s := b.order.current
	_, err := b.decide(1)
	asFault(t, err, abi.FaultReturnedError)
	if _, err := b.decide(1); err != nil || b.order.current != s {
		t.Errorf("after the resync: %v", err)
	}
	sameTable(t, s, &b.mock.view, abi.FlagResync)

	b = newBench(t)
	b.use("inconsistent", guestFile(t, "inconsistent"))
	for range 2 {
		_, err := b.decide(1)
		asFault(t, err, abi.FaultReturnedError)
	}
	if b.order.current != nil {
		t.Error("after two in a row it still decides")
	}
}

// TestSetAside: three faults in a minute and the guest is not asked, for longer each time. After
// that it is on probation: another fault sets it aside again, and clean steps make it trusted.
func TestSetAside(t *testing.T) {
	b := newBench(t)
	b.use("trap", guestFile(t, "trap"))
	h := &b.mock.view.Header
	fault := func() {
		t.Helper()
		b.settle()
		_, err := b.decide(1)
		asFault(t, err, abi.FaultTrap)
	}
	aside := func(d time.Duration) {
		t.Helper()
		start := h.NowNS
		for _, at := range []time.Duration{2 * time.Millisecond, d - 2*time.Millisecond} {
			h.NowNS = start + int64(at)
			if _, err := b.decide(1); err != ErrSetAside {
				t.Fatalf("%v after the fault: %v", at, err)
			}
		}
		if s, _ := b.Active(); s.Breaker != Open || s.LastFault == "" {
			t.Errorf("status %+v", s)
		}
		if b.seen.last.Breaker != Open || !b.seen.last.Fallback {
			t.Errorf("the observer heard %+v", b.seen.last)
		}
		h.NowNS = start + int64(d)
	}
	fault()
	fault()
	fault()
	if b.seen.last.Recovery != Bypassed {
		t.Errorf("the observer heard %+v", b.seen.last)
	}
	aside(time.Second)
	fault()
	aside(2 * time.Second)
	most := DefaultRules().BackoffMax
	for range 8 {
		fault()
		b.settle()
		h.NowNS += int64(most)
	}
	fault()
	aside(most)
	if s, _ := b.Active(); s.Faults != 13 || s.Calls != 13 {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(b.log.String(), "policy set aside") {
		t.Error("the log does not say so")
	}
	// Activating it is the operator's word that it deserves another chance.
	b.use("trap", guestFile(t, "trap"))
	b.settle()
	_, err := b.decide(1)
	asFault(t, err, abi.FaultTrap)
}

// setAside makes the active module be set aside, and then lets its pause pass.
func (b *bench) setAside() {
	b.t.Helper()
	for range 3 {
		b.settle()
		if _, err := b.decide(1); err != nil {
			b.t.Fatal(err)
		}
		b.ReportFault(abi.FaultBadOutput, "for the test")
	}
	b.settle()
	if _, err := b.decide(1); err != ErrSetAside {
		b.t.Fatalf("got %v", err)
	}
	b.mock.view.Header.NowNS += int64(time.Second)
}

// TestProbation: after its pause a module decides and is judged, and the built-in policy acts, for
// 200 clean steps; then it is trusted.
func TestProbation(t *testing.T) {
	b := newBench(t)
	b.use("fcfs", shipped(t, "fcfs"))
	b.setAside()
	for i := range 200 {
		if out, err := b.decide(1); err != ErrProbation || len(out) != 0 {
			t.Fatalf("step %d: %v %v", i, out, err)
		}
		if !b.seen.last.Fallback || b.seen.last.Wall == 0 {
			t.Fatalf("step %d: the observer heard %+v", i, b.seen.last)
		}
	}
	if b.seen.last.Recovery != Recovered || b.seen.last.Breaker != Closed {
		t.Errorf("the observer heard %+v", b.seen.last)
	}
	if _, err := b.decide(1); err != nil {
		t.Fatalf("after the probation: %v", err)
	}
	if !strings.Contains(b.log.String(), "policy trusted again") {
		t.Error("the log does not say so")
	}
}

// TestProbationJudges: a bad answer on probation is a fault although nobody acts on it.
func TestProbationJudges(t *testing.T) {
	b := newBench(t)
	b.use("repeated_slot", guestFile(t, "repeated_slot"))
	b.setAside()
	b.mock.fill(40)
	_, err := b.decide(1)
	asFault(t, err, abi.FaultBadOutput)
	if _, err := b.decide(1); err != ErrSetAside {
		t.Fatalf("got %v", err)
	}
}

// TestOnFault: what decides while the active module is not trusted is the operator's choice.
func TestOnFault(t *testing.T) {
	for _, on := range []OnFault{Fallback, Previous, StopAdmitting} {
		b := newBench(t)
		b.SetRules(Rules{OnFault: on})
		b.use("fcfs", shipped(t, "fcfs"))
		b.use("quiet", guestFile(t, "quiet"))
		for range 3 {
			b.settle()
			if !b.Admits() {
				t.Fatalf("%s: nothing is admitted before", on)
			}
			if _, err := b.decide(1); err != nil {
				t.Fatal(err)
			}
			b.ReportFault(abi.FaultBadOutput, "for the test")
		}
		b.mock.fill(40)
		for _, stage := range []Stage{Open, HalfOpen} {
			out, err := b.decide(1)
			if s, _ := b.Active(); s.Breaker != stage {
				t.Errorf("%s: %+v", on, s)
			}
			if (on == Previous) != (err == nil && len(out) > 0) {
				t.Errorf("%s, %s: %d decisions, %v", on, stage, len(out), err)
			}
			if (on == StopAdmitting) == b.Admits() {
				t.Errorf("%s, %s: admits %v", on, stage, b.Admits())
			}
			b.settle()
			b.mock.view.Header.NowNS += int64(time.Second)
		}
		b.SetRules(Rules{OnFault: on, CleanSteps: 2})
		_, _ = b.decide(1)
		if _, err := b.decide(1); err != nil || !b.Admits() {
			t.Errorf("%s: trusted again: %v", on, err)
		}
	}
}

func TestMemoryLeak(t *testing.T) {
	b := newBench(t)
	b.use("memory_leak", guestFile(t, "memory_leak"))
	for i := range 240 {
		_, err := b.decide(1)
		if i < 239 && err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if i == 239 {
			asFault(t, err, abi.FaultMemory)
		}
	}
	if b.seen.last.Memory != 16<<20 {
		t.Errorf("observed %d bytes", b.seen.last.Memory)
	}
	b.settle()
	if _, err := b.decide(1); err != nil || b.seen.last.Memory != 17*pageBytes {
		t.Errorf("afterwards: %v, %d bytes", err, b.seen.last.Memory)
	}
}

// TestDeepRecursion: a recursion at load has fuel for a long time; the runtime's stack ends it.
func TestDeepRecursion(t *testing.T) {
	b := newBench(t)
	_, err := b.Load(t.Context(), Spec{Wasm: guestFile(t, "init_recursion")})
	f := asFault(t, err, abi.FaultLoadInit)
	if !strings.Contains(f.Detail, "stack: stack overflow") {
		t.Errorf("got %v", f)
	}
}

// TestLogLines: so many a second, the rest is counted and told of.
func TestLogLines(t *testing.T) {
	b := newBench(t)
	b.use("logs", guestFile(t, "logs"))
	b.mock.fill(40)
	clock := time.Unix(0, 0)
	b.order.lines.now = func() time.Time { return clock }
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	said := b.log.String()
	if n := strings.Count(said, "policy says"); n != abi.LimitLogLinesPerSecond {
		t.Errorf("%d lines", n)
	}
	longest := 0
	for line := range strings.Lines(said) {
		longest = max(longest, len(line))
	}
	if longest > 6*abi.LimitLogLineBytes {
		t.Errorf("a line has %d bytes", longest)
	}
	clock = clock.Add(time.Second)
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	if b.seen.dropped != 900 || !strings.Contains(b.log.String(), "dropped=900") {
		t.Errorf("%d dropped", b.seen.dropped)
	}
}

func TestNoAllocations(t *testing.T) {
	for _, name := range []string{"fcfs", "sjf-aging"} {
		b := newBench(t)
		b.seen.faults = nil
		b.use(name, shipped(t, name))
		b.mock.fill(1000)
		b.out = make([]abi.Decision, 0, 128)
		if _, err := b.decide(64); err != nil {
			t.Fatal(err)
		}
		// The count is the process's: what a goroutine of an earlier test still does may be in
		// it, so the least of several counts tells.
		allocs := math.Inf(1)
		for try := 0; try < 10 && allocs > 0; try++ {
			allocs = min(allocs, testing.AllocsPerRun(100, func() {
				if _, err := b.decide(64); err != nil {
					t.Fatal(err)
				}
			}))
		}
		if allocs != 0 {
			t.Errorf("%s: %v allocations a step", name, allocs)
		}
	}
}
