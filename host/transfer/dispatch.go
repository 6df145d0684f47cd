package transfer

import (
	"errors"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
)

// Dispatch is the whole sending side of one transfer without a socket, clock or goroutine: the
// machine (Outbound), the packer that reads the pages, and the queue between them. The counterpart
// is Ledger.Connect. Whoever owns the wire does this, whenever something happened:
//
//	d.Tick(now); for frame := d.Next(now); frame != nil; frame = d.Next(now) { write frame }
//
// and gives what arrives to Take, the end of the connection to Closed. Start comes first. Events
// tells what the engine must hear; Deadline says when Tick is due.
//
// A Dispatch is not safe for concurrent use: Outgoing is the same thing behind a lock.
type Dispatch struct {
	*Outbound
	meta   *Metadata
	models []Model
	room   func(size int) []byte
	most   int // bytes of KV in a frame
	late   bool
	pack   *packer
	queue  []*shipment
}

// shipment is a data frame, or frames that are to be packed yet, or, where both are nil, a seal at
// position end. What is owed may be a piece for the lane.
type shipment struct {
	parcel *parcel
	owed   *owed
	piece  *piece
	end    int
}

func (s *shipment) isSeal() bool { return s.parcel == nil && s.owed == nil }

// size is what a shipment adds to the backlog.
func (s *shipment) size() int64 {
	if s.parcel == nil {
		return 0
	}
	return int64(len(s.parcel.whole))
}

// NewDispatch is the sending side of a transfer of id, the engine's own name, to the receiver that
// made m. Timeout is how long the receiver may be silent.
func NewDispatch(id string, m *Metadata, models []Model, timeout time.Duration) *Dispatch {
	return &Dispatch{
		Outbound: NewOutbound(id, m, models, timeout), meta: m, models: models, most: frameBytes,
		late: late(models),
		room: func(size int) []byte { return make([]byte, size) },
	}
}

// SetFrame bounds the KV of one data frame, in bytes; a frame holds one position at least. It
// counts from the first Send on.
func (d *Dispatch) SetFrame(bytes int) { d.most = max(1, min(bytes, MaxFrame)) }

// errNotOpen is a mistake of the caller: the state says when keys and values may be sent.
var errNotOpen = errors.New("transfer: Send before Opened or after Seal")

// Send queues what a layer of a model has not sent yet of the window's positions below end. pages
// is the sequence's page table. Unless they are LatePages, the keys and values are copied out of
// them before it returns. After a failure it does nothing and returns why; pages that cannot be
// read are one.
func (d *Dispatch) Send(
	model, layer, end int, pages []kvcache.PageID, now time.Duration,
) error {
	if err := d.ready(); err != nil {
		return err
	}
	what := owed{model, layer, end, pages}
	if d.late {
		d.owe(what)
		return nil
	}
	if bad := d.pack.pack(what, d.ship); bad != nil {
		d.GiveUp(bad, now)
		return bad
	}
	return nil
}

// owe queues what is to be packed when its turn comes.
func (d *Dispatch) owe(what owed) {
	what.pages = slices.Clone(what.pages) // The caller's may be another's in the next step.
	d.queue = append(d.queue, &shipment{owed: &what})
}

// ready says why nothing can be sent, if so. The packer starts where the receiver wants it.
func (d *Dispatch) ready() error {
	if bad := d.Err(); bad != nil {
		return bad
	}
	if !d.Writing() {
		return errNotOpen
	}
	if d.pack == nil {
		d.pack = newPacker(d.meta, d.models, d.From(), d.room)
		d.pack.most = d.most
	}
	return nil
}

func (d *Dispatch) ship(p *parcel) { d.queue = append(d.queue, &shipment{parcel: p}) }

// SealChunk says that all layers of all models have sent everything below end: another writer may
// resume there if this one is lost. Optional; an end at or below an earlier one says nothing new,
// and one beyond the window is Seal's.
func (d *Dispatch) SealChunk(end int) {
	if end < d.meta.Window.End {
		d.queue = append(d.queue, &shipment{end: end})
	}
}

// SealAll says that everything was sent. A Done event follows when the receiver has it all.
func (d *Dispatch) SealAll() { d.queue = append(d.queue, &shipment{end: d.meta.Window.End}) }

// Queued is the count of data frames and seals that wait.
func (d *Dispatch) Queued() int { return len(d.queue) }

// peek is the next shipment, if the machine lets it go.
func (d *Dispatch) peek() *shipment {
	if !d.Writing() || len(d.queue) == 0 {
		return nil
	}
	return d.queue[0]
}

// sent notes that the first of the queue was taken, or one frame of it, and says whether the frame
// may go. What is owed stays until no frame comes of it any more.
func (d *Dispatch) sent(first *shipment, frame *parcel, now time.Duration) (ok bool) {
	if d.peek() != first { // Given up meanwhile.
		return false
	}
	if first.owed == nil || frame == nil {
		d.queue[0] = nil
		d.queue = d.queue[1:]
	}
	if first.isSeal() {
		d.sealBelow(first.end, now)
	}
	return frame != nil && d.data(frame, now)
}

// frame is the next frame of a shipment, complete; nil for a seal, and when nothing is owed.
func (d *Dispatch) frame(of *shipment) (frame *parcel, bad *Error) {
	frame = of.parcel
	if of.owed != nil {
		frame, bad = d.pack.one(*of.owed)
	}
	if frame != nil {
		frame.finish(d.pass)
	}
	return frame, bad
}

// Next is what is to be written to the connection next: what the machine has to say, or one data
// frame. Nil means that there is nothing now. The bytes are the caller's, and count as written.
func (d *Dispatch) Next(now time.Duration) []byte {
	for {
		if said := d.Output(); len(said) > 0 {
			d.Written(len(said))
			d.Crossed(len(said), false)
			return said
		}
		next := d.peek()
		if next == nil {
			return nil
		}
		frame, bad := d.frame(next)
		if bad != nil {
			d.GiveUp(bad, now)
		} else if d.sent(next, frame, now) {
			d.Crossed(len(frame.whole), true)
			return frame.whole
		}
	}
}

// clear drops what waits and says how many bytes it was.
func (d *Dispatch) clear() (bytes int64) {
	for _, s := range d.queue {
		bytes += s.size()
	}
	d.queue = nil
	return bytes
}
