package plugins

import (
	"encoding/binary"

	"github.com/kvrelay/engine/abi"
)

// shown is what a step's header told the guest.
type shown struct {
	changed int  // entries of the changed list
	room    int  // most decisions
	resync  bool // every slot was written
}

// show brings the guest's record table, changed list and header up to date. On a resync every slot
// is written and every live one listed; otherwise what v.Changed names. Nothing is allocated.
func (s *sandbox) show(v *abi.View) (shown, error) {
	records, ok1 := s.bytes(abi.BufferRecords)
	changed, ok2 := s.bytes(abi.BufferChanged)
	header, ok3 := s.bytes(abi.BufferHeader)
	if !ok1 || !ok2 || !ok3 {
		panic("plugins: the guest's memory shrank")
	}
	h := v.Header
	slots := int(h.NSlots)
	if slots > len(v.Records) || slots*abi.RecordSize > len(records) {
		return shown{}, ErrTable
	}
	if s.stale || s.g.swapped {
		h.Flags |= abi.FlagResync
	}
	if s.g.swapped {
		h.Flags |= abi.FlagSwap
	}
	count := 0
	if h.Flags&abi.FlagResync != 0 {
		count = writeAll(records, changed, v.Records[:slots])
	} else if count = writeChanged(records, changed, v); count < 0 {
		return shown{}, ErrTable
	}
	s.g.swapped = false
	if err := s.showTenants(v.Tenants, h.Flags&abi.FlagResync != 0, &h); err != nil {
		return shown{}, err
	}
	if err := s.showPeers(v.Peers, &h); err != nil {
		return shown{}, err
	}
	room := int(s.regions[abi.BufferDecisions].size) / abi.DecisionSize
	room = min(room, int(h.DecisionsCap))
	if err := s.showPreset(v.Preset); err != nil {
		return shown{}, err
	}
	h.NPreset = uint32(len(v.Preset))
	h.Magic, h.Minor, h.HeaderSize = abi.Magic, abi.Minor, abi.HeaderSize
	h.RecordStride, h.RecordsPtr = abi.RecordSize, s.regions[abi.BufferRecords].at
	h.NChanged, h.ChangedPtr = uint32(count), s.regions[abi.BufferChanged].at
	h.DecisionsCap, h.DecisionsPtr = uint32(room), s.regions[abi.BufferDecisions].at
	h.DecisionStride = abi.DecisionSize
	h.Encode(header)
	return shown{changed: count, room: room, resync: h.Flags&abi.FlagResync != 0}, nil
}

// room is a region of the guest's memory that must hold so many bytes; ErrTable if it does not.
func (s *sandbox) room(kind, bytes int) ([]byte, error) {
	memory, ok := s.bytes(kind)
	if !ok {
		panic("plugins: the guest's memory shrank")
	}
	if bytes > len(memory) {
		return nil, ErrTable
	}
	return memory, nil
}

// showTenants brings the tenant table up to date: all of it on a resync, otherwise the rows that
// changed. A module without the capability is shown none.
func (s *sandbox) showTenants(rows []abi.Tenant, all bool, h *abi.Header) error {
	h.TenantsPtr, h.NTenants = 0, 0
	region := s.regions[abi.BufferTenants]
	if region.size == 0 {
		return nil
	}
	memory, err := s.room(abi.BufferTenants, len(rows)*abi.TenantSize)
	if err != nil {
		return err
	}
	for i := range rows {
		known := i < len(s.tenants)
		if known && !all && s.tenants[i] == rows[i] {
			continue
		}
		rows[i].Encode(memory[i*abi.TenantSize:])
		if known {
			s.tenants[i] = rows[i]
		} else {
			s.tenants = append(s.tenants, rows[i])
		}
	}
	h.TenantsPtr, h.NTenants = region.at, uint32(len(rows))
	return nil
}

// showPeers writes the peer table.
func (s *sandbox) showPeers(rows []abi.Peer, h *abi.Header) error {
	h.PeersPtr, h.NPeers = 0, 0
	region := s.regions[abi.BufferPeers]
	if region.size == 0 {
		return nil
	}
	memory, err := s.room(abi.BufferPeers, len(rows)*abi.PeerSize)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Encode(memory[i*abi.PeerSize:])
	}
	h.PeersPtr, h.NPeers = region.at, uint32(len(rows))
	return nil
}

// showPreset writes the answer of another module where this one's own will stand.
func (s *sandbox) showPreset(preset []abi.Decision) error {
	if len(preset) == 0 {
		return nil
	}
	memory, err := s.room(abi.BufferDecisions, len(preset)*abi.DecisionSize)
	if err != nil {
		return err
	}
	for i := range preset {
		preset[i].Encode(memory[i*abi.DecisionSize:])
	}
	return nil
}

// writeAll writes every slot and lists the live ones; it returns how many those are.
func writeAll(records, changed []byte, table []abi.Record) int {
	count := 0
	for slot := range table {
		r := &table[slot]
		r.Encode(records[slot*abi.RecordSize:])
		if r.State&abi.StateLive != 0 {
			binary.LittleEndian.PutUint32(changed[4*count:], uint32(slot))
			count++
		}
	}
	return count
}

// writeChanged writes and lists the slots that changed; -1 says that the list is malformed.
func writeChanged(records, changed []byte, v *abi.View) int {
	if 4*len(v.Changed) > len(changed) {
		return -1
	}
	for i, slot := range v.Changed {
		if slot >= v.Header.NSlots || i > 0 && slot <= v.Changed[i-1] {
			return -1
		}
		v.Records[slot].Encode(records[int(slot)*abi.RecordSize:])
		binary.LittleEndian.PutUint32(changed[4*i:], slot)
	}
	return len(v.Changed)
}

// read appends the first n decisions of the guest's answer to out.
func (s *sandbox) read(n int, out []abi.Decision) ([]abi.Decision, *Fault) {
	decisions, ok := s.bytes(abi.BufferDecisions)
	if !ok {
		panic("plugins: the guest's memory shrank")
	}
	for i := range n {
		var d abi.Decision
		if err := d.Decode(decisions[i*abi.DecisionSize:]); err != nil {
			return out, s.g.fault(abi.FaultMemory, exportDecide, "decision %d: %v", i, err)
		}
		out = append(out, d)
	}
	return out, nil
}
