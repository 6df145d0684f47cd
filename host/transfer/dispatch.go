package transfer

import (
	"errors"
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
	pack   *packer
	queue  []shipment
}

// shipment is a data frame, or, where parcel is nil, a seal at position end.
type shipment struct {
	parcel *parcel
	end    int
}

// size is what a shipment adds to the backlog.
func (s shipment) size() int64 {
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
		room: func(size int) []byte { return make([]byte, size) },
	}
}

// SetFrame bounds the KV of one data frame, in bytes; a frame holds one position at least. It
// counts from the first Send on.
func (d *Dispatch) SetFrame(bytes int) { d.most = max(1, min(bytes, MaxFrame)) }

// errNotOpen is a mistake of the caller: the state says when keys and values may be sent.
var errNotOpen = errors.New("transfer: Send before Opened or after Seal")

// Send queues what a layer of a model has not sent yet of the window's positions below end. pages
// is the sequence's page table; the keys and values are copied out of them before it returns. After
// a failure it does nothing and returns why; pages that cannot be read are one.
func (d *Dispatch) Send(
	model, layer, end int, pages []kvcache.PageID, now time.Duration,
) error {
	if err := d.ready(); err != nil {
		return err
	}
	if bad := d.pack.pack(model, layer, end, pages, d.ship); bad != nil {
		d.GiveUp(bad, now)
		return bad
	}
	return nil
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

func (d *Dispatch) ship(p *parcel) { d.queue = append(d.queue, shipment{parcel: p}) }

// SealChunk says that all layers of all models have sent everything below end: another writer may
// resume there if this one is lost. Optional; an end at or below an earlier one says nothing new,
// and one beyond the window is Seal's.
func (d *Dispatch) SealChunk(end int) {
	if end < d.meta.Window.End {
		d.queue = append(d.queue, shipment{end: end})
	}
}

// SealAll says that everything was sent. A Done event follows when the receiver has it all.
func (d *Dispatch) SealAll() { d.queue = append(d.queue, shipment{end: d.meta.Window.End}) }

// Queued is the count of data frames and seals that wait.
func (d *Dispatch) Queued() int { return len(d.queue) }

// take is the next shipment, if the machine lets it go.
func (d *Dispatch) take() *shipment {
	if !d.Writing() || len(d.queue) == 0 {
		return nil
	}
	next := &d.queue[0]
	d.queue = d.queue[1:]
	return next
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
		next := d.take()
		switch {
		case next == nil:
			return nil
		case next.parcel == nil:
			d.sealBelow(next.end, now)
		default:
			next.parcel.finish(d.pass)
			if d.data(next.parcel, now) {
				d.Crossed(len(next.parcel.whole), true)
				return next.parcel.whole
			}
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
