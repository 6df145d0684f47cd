package engine

import (
	"time"

	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// maxPeers bounds the instances that are told apart; KV for further ones has no peer.
const maxPeers = 256

// States of a peer in the policies' table.
const (
	peerLost    = 0 // The last transfer could not reach it.
	peerUsable  = 1
	peerRefuses = 2 // It was reached and said no.
)

// peers is the policies' table of those that KV is sent to, in the order they came, and what is on
// its way. KV counts from the step that computes it to the receiver's acknowledgement.
type peers struct {
	numbers map[string]uint16 // by address, from 1
	table   []scheduler.Peer
	rates   []linkRate
	backlog int64 // over all peers
	rate    linkRate
}

// index is the number of the peer at an address.
func (p *peers) index(address string) uint16 {
	if n, known := p.numbers[address]; known || len(p.table) == maxPeers {
		return n
	}
	n := uint16(len(p.table) + 1)
	if p.numbers == nil {
		p.numbers = map[string]uint16{}
	}
	p.numbers[address] = n
	p.table = append(p.table, scheduler.Peer{Index: uint32(n), State: peerUsable})
	p.rates = append(p.rates, linkRate{})
	return n
}

// row is a peer's entry; of one without a number it is scratch.
func (p *peers) row(peer uint16) *scheduler.Peer {
	if peer == 0 {
		return &scheduler.Peer{}
	}
	return &p.table[peer-1]
}

// heard notes what metadata of a peer said about it.
func (p *peers) heard(peer uint16, m *transfer.Metadata) {
	row := p.row(peer)
	row.FreePages, row.Running = uint32(max(m.FreePages, 0)), uint32(max(m.Running, 0))
}

// mark counts bytes that were computed for a peer.
func (p *peers) mark(s *send, bytes int64) {
	s.marked += bytes
	p.backlog += bytes
	p.row(s.peer).BacklogBytes += uint64(bytes)
}

// settle takes off what a transfer that has ended was marked with, and notes how it went.
func (p *peers) settle(s *send, sent transfer.Event) {
	row := p.row(s.peer)
	row.BacklogBytes -= uint64(s.marked)
	p.backlog -= s.marked
	s.marked = 0
	switch {
	case sent.Kind == transfer.Done:
		row.State = peerUsable
		p.rate.add(sent.Bytes, sent.Elapsed)
		if s.peer > 0 {
			r := &p.rates[s.peer-1]
			r.add(sent.Bytes, sent.Elapsed)
			row.LinkBytesPerUS = r.perMicrosecond()
		}
	case sent.Err == nil:
	case sent.Err.Reason == transfer.Timeout || sent.Err.Reason == transfer.Reset:
		row.State = peerLost
	case sent.Err.Reason != transfer.Cancelled:
		row.State = peerRefuses
	}
}

// linkRate is a running mean of what transfers reached, weighted by their bytes. A transfer
// overlaps the computing of its prompt, so that a link which is faster than the device looks as
// fast as the device needs it to be.
type linkRate struct {
	bytes   float64
	seconds float64
}

// memory is how many bytes the mean remembers.
const memory = 64 << 20

func (r *linkRate) add(bytes int64, took time.Duration) {
	if bytes <= 0 || took <= 0 {
		return
	}
	keep := max(0, 1-float64(bytes)/memory)
	r.bytes = r.bytes*keep + float64(bytes)
	r.seconds = r.seconds*keep + took.Seconds()
}

// perMicrosecond is the rate as policies are told it, at least 1 once it is known.
func (r *linkRate) perMicrosecond() uint32 {
	if r.seconds == 0 {
		return 0
	}
	return uint32(min(max(r.bytes/r.seconds/1e6, 1), 1<<32-1))
}
