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
			b.active.current.stale = true
			want |= abi.FlagResync
			continue
		}
		if _, err := b.Decide(&b.mock.view, nil); err != nil {
			t.Fatal(err)
		}
		sameTable(t, b.active.current, &b.mock.view, want)
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
	sameTable(t, b.active.current, &b.mock.view, abi.FlagResync)
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
	first, spare := b.active.current, b.active.spare
	b.ReportFault(abi.FaultBadOutput, "for the test")
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	if b.active.current != spare || spare == first || spare == nil {
		t.Error("the spare did not take over")
	}
	sameTable(t, spare, &b.mock.view, abi.FlagResync)
	b.settle()
	if b.active.spare == nil {
		t.Error("there is no new spare")
	}
}

// TestWarming: without a spare the step is the built-in policy's, and nothing waits.
func TestWarming(t *testing.T) {
	b := newBench(t)
	b.use("quiet", guestFile(t, "quiet"))
	b.settle()
	b.active.spare.close()
	b.active.spare, b.active.building = nil, true // As if it were being made.
	b.ReportFault(abi.FaultBadOutput, "ignored: nothing was answered")
	b.active.current.close()
	b.active.current = nil
	if _, err := b.decide(1); err != ErrWarming {
		t.Fatalf("got %v", err)
	}
	b.active.building = false
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
	s := b.active.current
	_, err := b.decide(1)
	asFault(t, err, abi.FaultReturnedError)
	if _, err := b.decide(1); err != nil || b.active.current != s {
		t.Errorf("after the resync: %v", err)
	}
	sameTable(t, s, &b.mock.view, abi.FlagResync)

	b = newBench(t)
	b.use("inconsistent", guestFile(t, "inconsistent"))
	for range 2 {
		_, err := b.decide(1)
		asFault(t, err, abi.FaultReturnedError)
	}
	if b.active.current != nil {
		t.Error("after two in a row it still decides")
	}
}

// TestSetAside: three faults in a minute and the guest is not asked, for longer each time.
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
		if s, _ := b.Active(); s.State != StateSetAside || s.LastFault == "" {
			t.Errorf("status %+v", s)
		}
		h.NowNS = start + int64(d)
	}
	fault()
	fault()
	fault()
	aside(time.Second)
	fault()
	aside(2 * time.Second)
	for range 8 {
		fault()
		b.settle()
		h.NowNS += int64(breakerMost)
	}
	fault()
	aside(breakerMost)
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
	b.active.lines.now = func() time.Time { return clock }
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
