package plugins

import (
	"fmt"
	"time"

	"github.com/kvrelay/engine/abi"
)

// mock makes tables as a scheduler would, without one. The same calls make the same tables.
type mock struct {
	view  abi.View
	cuts  bool   // the tables come with the answer of another module
	chaos uint64 // state of the generator of field values
	ids   uint64
}

// newMock is an empty table on a small engine.
func newMock(decisions int) *mock {
	m := &mock{chaos: 1}
	seqs := uint32(min(decisions, 256))
	m.view.Header = abi.Header{
		NowNS: int64(time.Millisecond), Role: abi.RoleAll, PageTokens: 16, TokenBudget: 2048,
		ChunkMax: 512, ChunkAlign: 16, MaxSeqs: seqs, MaxAdmit: seqs, FreePages: 4000,
		TotalPages: 4096, ReservePages: 32, DecisionsCap: uint32(decisions), KVBytesPerToken: 4096,
	}
	return m
}

// draw is a number below n.
func (m *mock) draw(n uint64) uint64 {
	m.chaos = m.chaos*6364136223846793005 + 1442695040888963407
	return (m.chaos >> 33) % n
}

// request makes a record: waiting, in the middle of its prefill, or decoding.
func (m *mock) request(state uint32) abi.Record {
	m.ids++
	prompt := uint32(1 + m.draw(4000))
	r := abi.Record{
		ID: m.ids, ArrivalNS: int64(m.draw(uint64(time.Millisecond))), State: abi.StateLive | state,
		PromptTokens: prompt, RemainingPrefill: prompt, MaxNew: uint32(1 + m.draw(500)),
		PagesNeeded: prompt/16 + 1, PrefixHash: m.draw(8), Tenant: uint32(m.ids % 8),
	}
	if state&abi.StateRunning != 0 {
		r.RemainingPrefill = 1 + uint32(m.draw(uint64(prompt)))
		r.PagesHeld = prompt/16 + 1
	}
	if state&abi.StateDecoding != 0 {
		r.RemainingPrefill, r.Generated = 0, 1+uint32(m.draw(uint64(r.MaxNew)))
	}
	return r
}

// states are the states that requests are made in, by turns.
var states = [4]uint32{0, abi.StateRunning, 0, abi.StateRunning | abi.StateDecoding}

// fill makes a table of n slots of all states, one in seven free, all of them changed.
func (m *mock) fill(n int) {
	m.view.Records, m.view.Changed = m.view.Records[:0], m.view.Changed[:0]
	for i := range n {
		var r abi.Record
		if i%7 != 6 || n < 7 {
			r = m.request(states[i%len(states)])
		}
		m.view.Records = append(m.view.Records, r)
		m.view.Changed = append(m.view.Changed, uint32(i))
	}
	m.count()
}

// change gives n slots other requests.
func (m *mock) change(n int) {
	m.view.Changed = m.view.Changed[:0]
	size := len(m.view.Records)
	for i := 0; i < n && i < size; i++ {
		slot := i * size / min(n, size)
		m.view.Records[slot] = m.request(states[(slot+i)%len(states)])
		m.view.Changed = append(m.view.Changed, uint32(slot))
	}
	m.count()
}

// count begins the next step and brings the header's numbers in line with the table.
func (m *mock) count() {
	h := &m.view.Header
	h.Step++
	h.NowNS += int64(time.Millisecond)
	h.Seed = m.draw(1 << 31)
	h.NSlots, h.NChanged = uint32(len(m.view.Records)), uint32(len(m.view.Changed))
	h.NWaiting, h.NRunning, h.DecodeTokens = 0, 0, 0
	for _, r := range m.view.Records {
		switch {
		case r.State == 0:
		case r.State&abi.StateRunning == 0:
			h.NWaiting++
		default:
			h.NRunning++
		}
		if r.State&abi.StateDecoding != 0 {
			h.DecodeTokens++
		}
	}
}

// happen makes tenants, peers and events that go with the table.
func (m *mock) happen() {
	v := &m.view
	v.Tenants = v.Tenants[:0]
	for i := range uint32(8) {
		v.Tenants = append(v.Tenants, abi.Tenant{Index: i, WeightMilli: 1000 * (i%3 + 1),
			ServiceTokens: m.draw(1 << 20), MaxSeqs: i % 4})
	}
	v.Peers = append(v.Peers[:0], abi.Peer{Index: 1, State: 1, LinkBytesPerUS: 1000,
		BacklogBytes: m.draw(1 << 30), FreePages: uint32(m.draw(4096))})
	v.Events = v.Events[:0]
	for slot := range min(len(v.Records), 20) {
		v.Events = append(v.Events, abi.Event{Kind: uint16(1 + m.draw(6)), Slot: uint32(slot),
			ID: v.Records[slot].ID, Tokens: uint32(m.draw(4096))})
	}
	v.Events = append(v.Events, abi.Event{Kind: abi.EventStepDone, US: v.Header.LastStepUS})
}

// turn brings a mock to its next table.
type turn struct {
	name string
	next func()
}

// probes is the suite that every module passes before it may decide: each table is the one before,
// a step later. each is called with every one of them in turn.
func probes(slots, decisions int, cuts bool, each func(name string, v *abi.View) *Fault) *Fault {
	m := newMock(decisions)
	m.cuts = cuts
	few, many := min(slots, 16), min(slots, 1000)
	return m.play(each, []turn{
		{"no request", func() { m.fill(0) }},
		{"one waiting request", func() { m.fill(1) }},
		{"one request, then another in its slot", func() { m.change(1) }},
		{fmt.Sprintf("%d slots of all states", few), func() { m.fill(few) }},
		{"half of them changed", func() { m.change(few / 2) }},
		{"nothing changed", func() { m.change(0) }},
		{"no token left", func() { m.view.Header.TokenBudget = 0; m.change(1) }},
		{fmt.Sprintf("%d slots of all states", many), func() {
			m.view.Header.TokenBudget = 8192
			m.fill(many)
		}},
		{"64 of them changed", func() { m.change(64) }},
	})
}

// extremes is the suite for authors: what an engine shows rarely or never.
func extremes(slots, decisions int, cuts bool, each func(name string, v *abi.View) *Fault) *Fault {
	m := newMock(decisions)
	m.cuts = cuts
	h := &m.view.Header
	last := func() *abi.Record { return &m.view.Records[len(m.view.Records)-1] }
	return m.play(each, []turn{
		{fmt.Sprintf("%d slots", slots), func() { m.fill(slots) }},
		{"every slot freed", func() {
			m.change(slots)
			clear(m.view.Records)
			m.count()
		}},
		{"every slot taken again", func() { m.fill(slots) }},
		{"room for no decision", func() { h.DecisionsCap = 0; m.change(1) }},
		{"room for one decision", func() { h.DecisionsCap = 1; m.change(1) }},
		{"chunks of one token", func() {
			h.DecisionsCap, h.ChunkMax, h.ChunkAlign = uint32(decisions), 1, 1
			m.change(1)
		}},
		{"chunks shorter than their alignment", func() {
			h.ChunkMax, h.ChunkAlign = 7, 16
			m.change(1)
		}},
		{"no chunk at all", func() { h.ChunkMax, h.ChunkAlign = 0, 0; m.change(1) }},
		{"a budget of 2^32-1 tokens", func() {
			h.TokenBudget, h.ChunkMax, h.ChunkAlign = 1<<32-1, 1<<32-1, 1
			m.change(1)
		}},
		{"more decodes than the budget", func() { h.TokenBudget = 1; m.change(1) }},
		{"no page free", func() {
			h.TokenBudget, h.FreePages, h.MaxAdmit = 2048, 0, 0
			m.change(1)
		}},
		{"ids beyond 32 bits", func() { m.ids = 1 << 40; m.change(slots / 2) }},
		{"a prompt of 2^32-1 tokens", func() {
			m.fill(slots)
			*last() = abi.Record{ID: 1 << 63, State: abi.StateLive, PromptTokens: 1<<32 - 1,
				RemainingPrefill: 1<<32 - 1, ArrivalNS: -1 << 63, Priority: -1 << 31}
		}},
		{"a request from the future", func() { m.fill(slots); last().ArrivalNS = 1<<63 - 1 }},
		{"all arrived at once", func() {
			m.fill(slots)
			for i := range m.view.Records {
				m.view.Records[i].ArrivalNS = 5
			}
		}},
		{"the clock near its end", func() { h.NowNS = 1<<63 - 1 - int64(time.Hour); m.change(1) }},
	})
}

// play shows the tables one after the other.
func (m *mock) play(each func(name string, v *abi.View) *Fault, turns []turn) *Fault {
	for _, p := range turns {
		p.next()
		m.happen()
		if m.cuts {
			m.preset()
		}
		if f := each(p.name, &m.view); f != nil {
			return f
		}
	}
	return nil
}

// preset fills in what another module might have answered: everything that has something to
// compute, its chunk length given or left open, and a few decodes to skip.
func (m *mock) preset() {
	v := &m.view
	v.Preset = v.Preset[:0]
	for slot := range v.Records {
		r := &v.Records[slot]
		if len(v.Preset) >= int(v.Header.DecisionsCap) {
			return
		}
		d := abi.Decision{Slot: uint32(slot), IDLow: uint32(r.ID), Reason: uint16(slot)}
		switch {
		case r.State&abi.StateDecoding != 0 && slot%3 == 0:
			d.Action = abi.ActionSkip
		case r.State&abi.StateDecoding != 0 || r.State == 0 || r.RemainingPrefill == 0:
			continue
		case slot%2 == 0:
			d.Tokens = abi.TokensAuto
		default:
			d.Tokens = min(r.RemainingPrefill, max(v.Header.ChunkMax, 1))
		}
		v.Preset = append(v.Preset, d)
	}
}

// try lets throw-away copies decide on made-up tables and judges the answers. A module that sets
// chunk lengths is tried on the answers of another one, too; one that also selects may fail at that
// and only be used for both.
func (g *generation) try() *Fault {
	s, f := g.newSandbox()
	if f != nil {
		return f
	}
	if g.about.Flags&abi.DescSelects != 0 {
		f = g.tryOn(s, false)
		if f == nil {
			g.calibrate(s)
		}
	}
	s.close()
	if f != nil || g.about.Flags&abi.DescSetsChunks == 0 {
		return f
	}
	if s, f = g.newSandbox(); f != nil {
		return f
	}
	defer s.close()
	g.cutless = g.tryOn(s, true)
	if g.about.Flags&abi.DescSelects == 0 {
		g.calibrate(s)
		return g.cutless
	}
	return nil
}

// tryOn lets one copy decide on made-up tables, with the answers of another module or without.
func (g *generation) tryOn(s *sandbox, cuts bool) *Fault {
	g.swapped = true
	var j abi.Judge
	return probes(g.slots, g.capacity, cuts, func(name string, v *abi.View) *Fault {
		out, a, err := s.step(v, nil)
		switch {
		case err != nil:
			panic("plugins: a made-up table: " + err.Error())
		case a.fault != nil && !a.keep:
			a.fault.Detail = fmt.Sprintf("on a made-up table (%s): %s", name, a.fault.Detail)
			return a.fault
		case a.fault != nil:
			return nil
		case cuts && len(v.Preset) > 0:
			err = judgeCut(&j, v, out)
		case !cuts:
			err = j.Check(v, out, s.granted)
		}
		if err != nil {
			return g.fault(abi.FaultBadOutput, exportDecide, "on a made-up table (%s): %v",
				name, err)
		}
		return nil
	})
}
