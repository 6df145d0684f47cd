package plugins

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/kvrelay/engine/abi"
)

// sandbox is one running copy of a module. It is thrown away after its first fault.
type sandbox struct {
	g        *generation
	name     string // unique within the generation's runtime
	instance api.Module
	memory   api.Memory
	fuel     api.MutableGlobal
	globals  []api.MutableGlobal // with the memory they are its state
	decide   api.Function
	observe  api.Function                // nil: it hears of no events
	regions  [abi.BufferPeers + 1]region // by kind; one that was not asked for has size 0
	stack    [2]uint64                   // of calls: arguments in, results out

	last         answer   // of the latest sound step
	answered     int      // decisions in region 4
	born         int32    // the level when it was made
	journal      *journal // nil: no input is kept
	level        int32    // the lowest that reaches the log, in this step
	timed        bool     // decisions are measured
	turn         uint64   // of the host, when it was asked last
	stale        bool     // the guest's table is not the host's: the next step is a resync
	inconsistent bool     // the guest asked for a resync in the step before
	granted      uint64
	tenants      []abi.Tenant // as the guest's table has them
	complaint    string       // what env.abort said
	console      console

	entered atomic.Bool // somebody is inside: the runtime dies of a second one
}

// region is a part of the guest's memory that pol_buffer gave.
type region struct{ at, size uint32 }

// bytes is a region as it lies in memory now: growth invalidates what was got before.
func (s *sandbox) bytes(kind int) ([]byte, bool) {
	return s.memory.Read(s.regions[kind].at, s.regions[kind].size)
}

// call runs an export with s.stack. No panic of the runtime passes it.
func (s *sandbox) call(f api.Function) (err error) {
	if !s.entered.CompareAndSwap(false, true) {
		panic("plugins: two goroutines in one sandbox")
	}
	defer func() {
		s.entered.Store(false)
		if r := recover(); r != nil {
			err = fmt.Errorf("the runtime failed: %v", r)
		}
	}()
	return f.CallWithStack(context.Background(), s.stack[:])
}

// answer is what one step came to.
type answer struct {
	fuel, limit int64         // of pol_decide
	observed    int64         // fuel of pol_observe
	took        time.Duration // of pol_decide, if the sandbox is timed
	memory      int64         // bytes of the guest's memory afterwards
	fault       *Fault
	keep        bool // the sandbox may go on after the fault: it asked for a resync
}

// step shows the guest a step and appends its decisions to out. The error is ErrTable or none.
func (s *sandbox) step(v *abi.View, out []abi.Decision) ([]abi.Decision, answer, error) {
	s.level, s.answered = s.g.lines.lowest(), 0
	if s.journal != nil {
		s.journal.open(s)
	}
	shown, err := s.show(v)
	if err != nil {
		s.stale = true
		if s.journal != nil {
			s.journal.drop()
		}
		return out, answer{}, err
	}
	if s.journal != nil {
		s.journal.step(s, v, shown.resync)
	}
	a := answer{limit: s.g.decideFuel(shown.changed)}
	s.console.begin(v.Header.NowNS)
	if a.fault = s.hear(v.Events, &a); a.fault != nil {
		return out, a, nil
	}
	before := s.memory.Size()
	s.fuel.Set(uint64(a.limit))
	s.stack[0] = uint64(s.regions[abi.BufferHeader].at)
	var begin time.Time
	if s.timed {
		begin = time.Now()
	}
	failed := s.call(s.decide)
	if s.timed {
		a.took = time.Since(begin)
	}
	a.fuel = a.limit - int64(s.fuel.Get())
	a.memory = int64(s.memory.Size())
	switch n := int32(s.stack[0]); {
	case failed != nil:
		a.fault = s.trapped(failed, exportDecide)
	case s.outgrew(before):
		a.fault = s.grown(exportDecide)
	case n == abi.CodeInconsistent && !s.inconsistent:
		s.stale, s.inconsistent, a.keep = true, true, true
		a.fault = s.returned(exportDecide, n)
	case n < 0:
		a.fault = s.returned(exportDecide, n)
	case int(n) > shown.room:
		a.fault = s.g.fault(abi.FaultBadOutput, exportDecide,
			"%d decisions were returned; at most %d are allowed", n, shown.room)
	default:
		s.stale, s.inconsistent, s.answered = false, false, int(n)
		out, a.fault = s.read(int(n), out)
	}
	return out, a, nil
}

// outgrew says whether the memory grew to its limit since it had so many bytes.
func (s *sandbox) outgrew(before uint32) bool {
	after := s.memory.Size()
	return after > before && int(after)/pageBytes >= s.g.limits.MemoryPages
}

func (s *sandbox) grown(call string) *Fault {
	return s.g.fault(abi.FaultMemory, call, "the memory grew to its limit of %d pages of 64 KiB",
		s.g.limits.MemoryPages)
}

// spent is the fuel that a step used.
func (a answer) spent() int64 { return a.fuel + a.observed }

// pageBytes is the size of a WebAssembly page.
const pageBytes = 1 << 16

// close frees the instance.
func (s *sandbox) close() {
	defer func() { _ = recover() }() // The runtime may fail on what a guest left.
	s.g.forget(s)
	if s.instance != nil {
		_ = s.instance.Close(context.Background())
	}
}
