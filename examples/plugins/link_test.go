package shipped

import (
	"time"

	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer"
)

// link is the way to a decode instance that takes everything, at a rate: one piece after the other.
type link struct {
	rate  int64 // bytes a microsecond
	heard func(transfer.Event)
	clock func() time.Duration
	free  time.Duration // when it has sent all that it was given
	queue []ending
}

// ending is a transfer whose last piece is on its way.
type ending struct {
	id    string
	done  time.Duration
	bytes int64
	took  time.Duration
}

// waits is how long the link needs for what it was given.
func (l *link) waits() time.Duration { return max(l.free-l.clock(), 0) }

// deliver tells of the transfers that have ended.
func (l *link) deliver() {
	for len(l.queue) > 0 && l.queue[0].done <= l.clock() {
		e := l.queue[0]
		l.queue = l.queue[1:]
		l.heard(transfer.Event{Kind: transfer.Done, Direction: transfer.Sending, ID: e.id,
			Bytes: e.bytes, Elapsed: e.took})
	}
}

// Parse implements engine.Sender.
func (l *link) Parse(text string, w transfer.Window) (*transfer.Metadata, error) {
	return &transfer.Metadata{Address: text, Window: w}, nil
}

// Open implements engine.Sender.
func (l *link) Open(id string, m *transfer.Metadata) (engine.Outgoing, error) {
	l.heard(transfer.Event{Kind: transfer.Opened, Direction: transfer.Sending, ID: id})
	return &outgoing{link: l, id: id}, nil
}

// Backlog implements engine.Sender.
func (l *link) Backlog() int64 { return l.rate * l.waits().Microseconds() }

// outgoing is one transfer.
type outgoing struct {
	link  *link
	id    string
	end   int // positions below were given to the link
	bytes int64
	begun time.Duration
}

// Send implements engine.Outgoing.
func (o *outgoing) Send(_, _, end int, _ []kvcache.PageID) error {
	bytes := int64(max(end-o.end, 0)) * tokenBytes
	if o.bytes == 0 {
		o.begun = max(o.link.clock(), o.link.free)
	}
	o.end, o.bytes = max(end, o.end), o.bytes+bytes
	micros := time.Duration(bytes/o.link.rate) * time.Microsecond
	o.link.free = max(o.link.free, o.link.clock()) + micros
	return nil
}

// SealChunk implements engine.Outgoing.
func (o *outgoing) SealChunk(int) {}

// Seal implements engine.Outgoing.
func (o *outgoing) Seal() {
	o.link.queue = append(o.link.queue, ending{o.id, o.link.free, o.bytes, o.link.free - o.begun})
}

// Cancel implements engine.Outgoing.
func (o *outgoing) Cancel() {}
