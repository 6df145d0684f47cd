package authortools

import (
	"github.com/kvrelay/engine/abi"
)

// situation is a step to decide: what is not said by the table follows from it.
type situation struct {
	header  abi.Header
	records []abi.Record
	tenants []abi.Tenant
	peers   []abi.Peer
}

// show makes the view of a step that follows another: the changed list is what differs.
func (s *situation) show(before *situation, step uint64, decisions int) *abi.View {
	v := &abi.View{Header: s.header, Records: s.records, Tenants: s.tenants, Peers: s.peers}
	if before == nil {
		before = &situation{}
		v.Header.Flags |= abi.FlagResync
	}
	// A table never shrinks: slots that are no longer named are free.
	for len(v.Records) < len(before.records) {
		v.Records = append(v.Records, abi.Record{})
	}
	s.records = v.Records
	h := &v.Header
	h.Step, h.NSlots, h.DecisionsCap = step, uint32(len(v.Records)), uint32(decisions)
	decoding := uint32(0)
	for slot := range v.Records {
		r := &v.Records[slot]
		if slot >= len(before.records) || *r != before.records[slot] {
			v.Changed = append(v.Changed, uint32(slot))
		}
		switch {
		case r.State&abi.StateLive == 0:
		case r.State&abi.StateRunning == 0:
			h.NWaiting++
		default:
			h.NRunning++
		}
		if r.State&abi.StateDecoding != 0 {
			decoding++
		}
	}
	h.NChanged = uint32(len(v.Changed))
	if h.DecodeTokens == 0 {
		h.DecodeTokens = decoding
	}
	return v
}
