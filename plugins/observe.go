package plugins

import "github.com/kvrelay/engine/abi"

// observeShare is which part of a decision's fuel pol_observe may use, all its calls in one step
// together.
const observeShare = 4

// hear tells the guest what happened since the last step, before it decides. The fuel is its own.
// More events than the region holds are told in several calls.
func (s *sandbox) hear(events []abi.Event, a *answer) *Fault {
	if s.observe == nil || len(events) == 0 {
		return nil
	}
	limit := a.limit / observeShare
	before := s.memory.Size()
	s.fuel.Set(uint64(limit))
	for len(events) > 0 {
		n := min(len(events), eventRows)
		memory, ok := s.bytes(abi.BufferEvents)
		if !ok {
			panic("plugins: the guest's memory shrank")
		}
		for i := range n {
			events[i].Encode(memory[i*abi.EventSize:])
		}
		events = events[n:]
		s.stack[0] = uint64(n)
		err := s.call(s.observe)
		a.observed = limit - int64(s.fuel.Get())
		switch code := int32(s.stack[0]); {
		case err != nil:
			return s.trapped(err, abi.ExportObserve)
		case s.outgrew(before):
			return s.grown(abi.ExportObserve)
		case code < 0:
			return s.returned(abi.ExportObserve, code)
		}
	}
	return nil
}
