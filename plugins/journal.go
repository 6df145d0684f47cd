package plugins

import (
	"encoding/binary"
	"slices"

	"github.com/kvrelay/engine/abi"
)

// journal is what a sandbox was shown since a moment at which its state is known: its birth, or a
// checkpoint. From it a step can be decided again exactly. It is bounded: when it is full the next
// step begins with a checkpoint, so that copying state costs a fixed part of copying input.
type journal struct {
	base    *checkpoint // nil: the sandbox's birth
	entries []byte
	begun   int  // where the latest entry begins
	lost    bool // the state could not be kept: the journal does not reach back far enough
	must    bool // the next step begins with a checkpoint
}

// The kinds of entries.
const (
	entryStep = 1 // a step: header, changed records and rows
	entryLoad = 2 // pol_load: version and state
	entrySave = 3 // pol_save
)

// Bounds of a journal, bytes. One step may go beyond, if it alone is larger.
const (
	journalLeast = 256 << 10
	journalMost  = 4 << 20
	journalTimes = 4 // as many bytes as the memory has, so often
)

// checkpoint is all of a sandbox's state between two steps.
type checkpoint struct {
	Globals      []uint64           `json:"globals"` // the mutable ones, in order
	Pages        int                `json:"pages"`   // of memory
	Regions      []checkpointRegion `json:"regions"`
	Chance       []byte             `json:"chance,omitempty"` // state of the stream of random bytes
	Lines        [2][]byte          `json:"lines"`            // begun and not ended
	Stale        bool               `json:"stale"`
	Inconsistent bool               `json:"inconsistent"`
	Tenants      []byte             `json:"tenants,omitempty"` // rows of the table, as it has them

	memory []byte
}

// checkpointRegion is a region of the guest's memory.
type checkpointRegion struct {
	At   uint32 `json:"at"`
	Size uint32 `json:"size"`
}

// keepInput makes a new sandbox keep what it is shown, if its module is to.
func (s *sandbox) keepInput() {
	if s.g.keeps {
		s.journal = &journal{}
	}
}

// room is how large a journal may become for a guest of so much memory.
func room(memory uint32) int {
	return min(max(journalTimes*int(memory), journalLeast), journalMost)
}

// open begins the entry of a step, after a checkpoint if it is time for one.
func (j *journal) open(s *sandbox) {
	if j.entries == nil {
		j.entries = make([]byte, 0, room(s.memory.Size()))
	}
	if j.must || len(j.entries) > room(s.memory.Size()) {
		j.must = false
		j.entries = j.entries[:0]
		j.base, j.lost = s.checkpoint(j.base)
	}
	j.begun = len(j.entries)
}

// drop takes back the entry that was begun: the guest was shown a part of a step and not asked.
func (j *journal) drop() {
	j.entries, j.must = j.entries[:j.begun], true
}

func (j *journal) u32(v uint32) { j.entries = binary.LittleEndian.AppendUint32(j.entries, v) }

// step writes an entry: what the guest was shown, as it now lies in its memory.
func (j *journal) step(s *sandbox, v *abi.View, resync bool) {
	header, _ := s.bytes(abi.BufferHeader)
	records, _ := s.bytes(abi.BufferRecords)
	j.entries = append(j.entries, entryStep, byte(int8(s.level)))
	j.entries = append(j.entries, header...)
	if resync {
		n := int(v.Header.NSlots)
		j.u32(uint32(n))
		for slot := range n {
			j.u32(uint32(slot))
			j.entries = append(j.entries, records[slot*abi.RecordSize:][:abi.RecordSize]...)
		}
	} else {
		j.u32(uint32(len(v.Changed)))
		for _, slot := range v.Changed {
			j.u32(slot)
			at := int(slot) * abi.RecordSize
			j.entries = append(j.entries, records[at:at+abi.RecordSize]...)
		}
	}
	has := func(kind int) bool { return s.regions[kind].size > 0 }
	rows(j, v.Tenants, has(abi.BufferTenants), abi.TenantSize, (*abi.Tenant).Encode)
	rows(j, v.Peers, has(abi.BufferPeers), abi.PeerSize, (*abi.Peer).Encode)
	rows(j, v.Events, has(abi.BufferEvents), abi.EventSize, (*abi.Event).Encode)
	rows(j, v.Preset, true, abi.DecisionSize, (*abi.Decision).Encode)
}

// rows writes a table, if the guest sees it: how many rows, and each.
func rows[T any](j *journal, list []T, seen bool, size int, encode func(*T, []byte)) {
	if !seen {
		list = nil
	}
	j.u32(uint32(len(list)))
	at := len(j.entries)
	j.entries = slices.Grow(j.entries, len(list)*size)[:at+len(list)*size]
	for i := range list {
		encode(&list[i], j.entries[at+i*size:])
	}
}

// load writes an entry for a state that the guest was given.
func (j *journal) load(st *state) {
	j.begun = len(j.entries)
	j.entries = append(j.entries, entryLoad)
	j.u32(uint32(st.version))
	j.u32(uint32(len(st.bytes)))
	j.entries = append(j.entries, st.bytes...)
}

// save writes an entry for a state that the guest was asked for.
func (j *journal) save() {
	j.begun = len(j.entries)
	j.entries = append(j.entries, entrySave)
}

// checkpoint copies the sandbox's state, into an older checkpoint where there is one: then nothing
// is allocated, unless the memory grew. It says whether anything is lost: a module may keep state
// where nobody can read it.
func (s *sandbox) checkpoint(c *checkpoint) (*checkpoint, bool) {
	if c == nil {
		c = &checkpoint{}
	}
	c.Stale, c.Inconsistent = s.stale, s.inconsistent
	rows := len(s.tenants) * abi.TenantSize
	c.Tenants = slices.Grow(c.Tenants[:0], rows)[:rows]
	for i := range s.tenants {
		s.tenants[i].Encode(c.Tenants[i*abi.TenantSize:])
	}
	size := s.memory.Size()
	memory, ok := s.memory.Read(0, size)
	if !ok {
		panic("plugins: the guest's memory shrank")
	}
	c.memory, c.Pages = append(c.memory[:0], memory...), int(size/pageBytes)
	c.Globals, c.Regions, c.Chance = c.Globals[:0], c.Regions[:0], nil
	for _, g := range s.globals {
		c.Globals = append(c.Globals, g.Get())
	}
	for _, r := range s.regions {
		c.Regions = append(c.Regions, checkpointRegion{r.at, r.size})
	}
	for i, line := range s.console.lines {
		c.Lines[i] = append(c.Lines[i][:0], line...)
	}
	if s.console.chance != nil {
		c.Chance, _ = s.console.chance.MarshalBinary() // It never fails.
	}
	return c, !s.g.whole
}

// restore brings a fresh sandbox to a checkpoint.
func (s *sandbox) restore(c *checkpoint) error {
	if grow := c.Pages - int(s.memory.Size()/pageBytes); grow > 0 {
		if _, ok := s.memory.Grow(uint32(grow)); !ok {
			return errRestore
		}
	}
	if len(c.Globals) != len(s.globals) || len(c.Regions) != len(s.regions) ||
		c.Pages != int(s.memory.Size()/pageBytes) || !s.memory.Write(0, c.memory) {
		return errRestore
	}
	for i, g := range s.globals {
		g.Set(c.Globals[i])
	}
	for i, r := range c.Regions {
		if _, inside := s.memory.Read(r.At, r.Size); !inside {
			return errRestore
		}
		s.regions[i] = region{r.At, r.Size}
	}
	if c.Chance != nil {
		if err := s.console.wake(s.g.config).UnmarshalBinary(c.Chance); err != nil {
			return errRestore
		}
	}
	for i, line := range c.Lines {
		s.console.lines[i] = append([]byte(nil), line...)
	}
	s.stale, s.inconsistent = c.Stale, c.Inconsistent
	s.tenants = make([]abi.Tenant, len(c.Tenants)/abi.TenantSize)
	for i := range s.tenants {
		if err := s.tenants[i].Decode(c.Tenants[i*abi.TenantSize:]); err != nil {
			return errRestore
		}
	}
	return nil
}
