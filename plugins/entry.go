package plugins

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// entry is one entry of a journal.
type entry struct {
	kind  byte
	level int32
	view  abi.View // of a step: Records holds the changed ones alone, in the order of Changed
	state state    // of a load
}

// entryReader reads the entries of a saved journal and believes none.
type entryReader struct {
	data   []byte
	in     *Input
	failed bool
}

// errEntry says that an entry is malformed.
var errEntry = errors.New("its journal ends inside an entry, or holds what does not fit the table")

// take is the next n bytes; zeros once there were too few.
func (r *entryReader) take(n int) []byte {
	if n > len(r.data) {
		r.failed, r.data = true, nil
		return make([]byte, min(n, abi.HeaderSize))
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *entryReader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }

// count reads how many items of a size follow, at most so many.
func (r *entryReader) count(size, most int) int {
	n := int(r.u32())
	if n > most || n*size > len(r.data) {
		r.failed = true
		return 0
	}
	return n
}

// next reads one entry.
func (r *entryReader) next() (entry, error) {
	e := entry{kind: r.take(1)[0]}
	switch e.kind {
	case entryStep:
		r.step(&e)
	case entryLoad:
		version := r.u32()
		n := r.count(1, abi.LimitStateBytes)
		e.state = state{bytes: r.take(n), version: uint16(version)}
		r.failed = r.failed || version > 1<<16-1
	case entrySave:
	default:
		return e, fmt.Errorf("its journal has an entry of kind %d", e.kind)
	}
	if r.failed {
		return e, errEntry
	}
	return e, nil
}

func (r *entryReader) step(e *entry) {
	e.level = int32(int8(r.take(1)[0]))
	v := &e.view
	if v.Header.Decode(r.take(abi.HeaderSize)) != nil || int(v.Header.NSlots) > r.in.Slots {
		r.failed = true
		return
	}
	n := r.count(4+abi.RecordSize, int(v.Header.NSlots))
	for i := range n {
		slot := r.u32()
		if slot >= v.Header.NSlots || i > 0 && slot <= v.Changed[i-1] {
			r.failed = true
			return
		}
		var record abi.Record
		r.failed = r.failed || record.Decode(r.take(abi.RecordSize)) != nil
		v.Changed, v.Records = append(v.Changed, slot), append(v.Records, record)
	}
	v.Tenants = readRows(r, abi.TenantSize, tenantRows, (*abi.Tenant).Decode)
	v.Peers = readRows(r, abi.PeerSize, peerRows, (*abi.Peer).Decode)
	v.Events = readRows(r, abi.EventSize, 1<<20, (*abi.Event).Decode)
	v.Preset = readRows(r, abi.DecisionSize, r.in.Decisions, (*abi.Decision).Decode)
}

// readRows reads a table.
func readRows[T any](r *entryReader, size, most int, decode func(*T, []byte) error) []T {
	var list []T
	for range r.count(size, most) {
		var row T
		r.failed = r.failed || decode(&row, r.take(size)) != nil
		list = append(list, row)
	}
	return list
}
