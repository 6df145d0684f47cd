package plugins

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// What a hand-over of state may use.
const (
	stateFuel  = 10      // times the fuel of a decision, for pol_save and for pol_load
	stateFirst = 4 << 10 // bytes of region 7 at first; a state that needs more says so, once
)

// state is what one guest saved for another.
type state struct {
	bytes   []byte
	version uint16
}

// save asks the guest for its state. A nil state without a fault means that it keeps none. The
// guest may say once that it needs a larger region.
func (s *sandbox) save() (*state, *Fault) {
	f := s.instance.ExportedFunction(abi.ExportSave)
	if f == nil || s.granted&abi.CapState == 0 || s.g.about.StateVersion == 0 {
		return nil, nil
	}
	if s.journal != nil {
		s.journal.save()
	}
	s.fuel.Set(uint64(stateFuel * s.g.decideFuel(0)))
	room := max(stateFirst, s.regions[abi.BufferState].size)
	for range 2 {
		if fault := s.stateRegion(room, abi.ExportSave); fault != nil {
			return nil, fault
		}
		s.stack[0] = uint64(room)
		if err := s.call(f); err != nil {
			return nil, s.trapped(err, abi.ExportSave)
		}
		n := int32(s.stack[0])
		switch {
		case n < 0:
			return nil, s.returned(abi.ExportSave, n)
		case uint32(n) <= room:
			memory, ok := s.bytes(abi.BufferState)
			if !ok {
				panic("plugins: the guest's memory shrank")
			}
			return &state{append([]byte(nil), memory[:n]...), s.g.about.StateVersion}, nil
		case n > abi.LimitStateBytes:
			return nil, s.g.fault(abi.FaultBadOutput, abi.ExportSave,
				"a state of %d bytes; at most %d are taken", n, abi.LimitStateBytes)
		}
		room = uint32(n)
	}
	return nil, s.g.fault(abi.FaultBadOutput, abi.ExportSave,
		"the state did not fit the %d bytes that it asked for", room)
}

// load gives a fresh guest the state that another saved. A nil fault means that it took it.
func (s *sandbox) load(st *state) *Fault {
	if s.journal != nil {
		s.journal.load(st)
	}
	s.fuel.Set(uint64(stateFuel * s.g.decideFuel(0)))
	if fault := s.stateRegion(uint32(max(len(st.bytes), 1)), abi.ExportLoad); fault != nil {
		return fault
	}
	memory, ok := s.bytes(abi.BufferState)
	if !ok {
		panic("plugins: the guest's memory shrank")
	}
	copy(memory, st.bytes)
	s.stack[0], s.stack[1] = uint64(len(st.bytes)), uint64(st.version)
	if err := s.call(s.instance.ExportedFunction(abi.ExportLoad)); err != nil {
		return s.trapped(err, abi.ExportLoad)
	}
	if code := int32(s.stack[0]); code < 0 {
		return s.returned(abi.ExportLoad, code)
	}
	return nil
}

// takes says whether the guest can be given the state of another: the same policy, by the name in
// its descriptor, that knows how to load one.
func (s *sandbox) takes(from *sandbox) bool {
	return s.granted&abi.CapState != 0 && s.g.own == from.g.own &&
		s.instance.ExportedFunction(abi.ExportLoad) != nil
}

// stateRegion makes region 7 hold so many bytes.
func (s *sandbox) stateRegion(size uint32, call string) *Fault {
	if size <= s.regions[abi.BufferState].size {
		return nil
	}
	if f := s.reserve(abi.BufferState, size); f != nil {
		f.Class, f.Call = abi.FaultReturnedError, call
		return f
	}
	return nil
}

// handed says what became of the state at a swap.
type handed struct {
	bytes int    // that were taken, 0 if none
	fault *Fault // why the new module starts fresh although there was a state to take
}

// handOver brings the state of the module that decided to the one that will, while no step runs.
// Whatever goes wrong, the new one starts fresh: the record table suffices. It needs a copy of the
// new module that has not decided yet; where there is none, nothing is handed over.
func handOver(from, to *generation) handed {
	if from == nil || from.current == nil || from.about.StateVersion == 0 {
		return handed{}
	}
	if !to.fresh() || !to.current.takes(from.current) {
		return handed{}
	}
	st, f := from.current.save()
	if f != nil {
		if f.Class != abi.FaultReturnedError {
			from.discard()
		}
		return handed{fault: f}
	}
	if st == nil {
		return handed{}
	}
	if f := to.current.load(st); f != nil {
		if f.Class != abi.FaultReturnedError {
			to.discard()
		}
		return handed{fault: f}
	}
	return handed{bytes: len(st.bytes)}
}

// text is for the log.
func (h handed) text() string {
	switch {
	case h.fault != nil:
		return fmt.Sprintf("fresh: %s in %s: %s", h.fault.Class, h.fault.Call, h.fault.Detail)
	case h.bytes > 0:
		return fmt.Sprintf("handed over, %d bytes", h.bytes)
	}
	return "fresh"
}
