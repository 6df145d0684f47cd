package transfer

import (
	"encoding/binary"
	"time"
)

// Outbound is the sender's end of one transfer. It is pure: bytes and the time go in, bytes come
// out (Output; data frames go straight from their buffers, see Dispatch) and events (Events).
type Outbound struct {
	line
	id      string
	opening []byte // payload of the opening frame
	end     int    // of the window
	begun   bool   // the opening frame was said

	from   int
	sealed int // the last seal's end
	sum    digest
	bytes  int64 // of keys and values in data frames
	first  time.Duration
	began  bool // first is set

	placed  uint32 // placed frames said
	taken   uint32 // of them, that the receiver has taken from the lane
	crossed int64  // bytes of keys and values written to the connection
	seals   []seal // said and not acknowledged, oldest first
	why     *Error // what made it give up
	events  []Event
}

// NewOutbound is the sender's end of a transfer to the receiver that made m.
func NewOutbound(id string, m *Metadata, models []Model, timeout time.Duration) *Outbound {
	o := opening{
		pass: pass{m.Epoch, m.token}, lease: m.Lease, window: m.Window, metadata: m.raw,
	}
	for _, model := range models {
		o.models = append(o.models, model.Compat.properties())
	}
	return &Outbound{
		line: line{state: asking, table: senderTable, timeout: timeout, pass: o.pass},
		id:   id, opening: o.append(nil), end: m.Window.End,
	}
}

// Start says the opening frame: the connection is there.
func (o *Outbound) Start(now time.Duration) {
	if o.state != asking || o.begun {
		return
	}
	o.begun, o.heard, o.entered = true, now, now
	o.say(kindOpen, o.opening, now)
	o.opening = nil
}

// Over says that nothing more happens: the connection is to be closed once Output is written.
func (o *Outbound) Over() bool { return o.state == done || o.state == failed }

// Writing says that data frames may be sent.
func (o *Outbound) Writing() bool { return o.state == writing }

// From is the first position that the receiver does not have; it counts once Writing was true.
func (o *Outbound) From() int { return o.from }

// Err is why the transfer failed or is being given up.
func (o *Outbound) Err() *Error { return o.why }

// Events is what happened since the last call, in order.
func (o *Outbound) Events() []Event {
	events := o.events
	o.events = nil
	return events
}

// data counts a finished data frame, which is to be written to the connection whole and before
// anything said later. It answers false when the state forbids it: throw it away.
func (o *Outbound) data(p *parcel, now time.Duration) bool {
	if o.state != writing {
		return false
	}
	if !o.began {
		o.first, o.began = now, true
	}
	o.sum = o.sum.add(p.leaf)
	o.bytes += int64(p.kv())
	if p.inLane {
		o.placed++
	}
	o.said = now
	return true
}

// Crossed says that n bytes were written to the connection; of a data frame, counted from its
// start.
func (o *Outbound) Crossed(n int, ofData bool) {
	o.wire += int64(n)
	if ofData {
		o.crossed += int64(max(0, n-dataHeadSize))
	}
}

// carried says that the keys and values of a placed frame are the receiver's to take.
func (o *Outbound) carried(bytes int) { o.crossed += int64(bytes) }

// sealBelow says that all data frames below end were written: a chunk, or with the window's end
// all. A chunk that adds nothing to what the receiver has sealed is not worth a word.
func (o *Outbound) sealBelow(end int, now time.Duration) {
	if o.state != writing || end <= o.sealed && end != o.end {
		return
	}
	o.sealed = end
	s := seal{end: end, bytes: o.bytes, digest: o.sum}
	o.seals = append(o.seals, s)
	o.say(kindSeal, s.append(nil), now)
	if end == o.end {
		o.move(onFinish, nil, now)
	}
}

// GiveUp ends the transfer for the given reason and tells the receiver, if there is one yet.
func (o *Outbound) GiveUp(why *Error, now time.Duration) {
	if !o.can(onGiveUp) {
		return
	}
	if !o.begun {
		o.move(onBad, why, now)
		return
	}
	o.move(onGiveUp, why, now)
}

// Closed says that the connection ended or could not be made, and why.
func (o *Outbound) Closed(why *Error, now time.Duration) {
	if !o.Over() {
		o.move(onClosed, why, now)
	}
}

// Filled says that n bytes from the connection were put in Space.
func (o *Outbound) Filled(n int, now time.Duration) {
	o.heard = now
	if o.deaf() {
		return
	}
	o.dec.filled(n)
	for !o.deaf() {
		f, ok, bad := o.dec.next(o.pass)
		if bad != nil {
			o.move(onBad, bad, now)
		} else if !ok {
			return
		} else {
			on, why := o.classify(f)
			if on != onBad && !o.can(on) {
				on, why = onBad, o.unexpected(f.kind)
			}
			o.move(on, why, now)
		}
	}
}

// Take gives the bytes that came from the connection, as Space and Filled do.
func (o *Outbound) Take(bytes []byte, now time.Duration) {
	feed(bytes, o.Space, func(n int) { o.Filled(n, now) })
}

// Tick is to be called at Deadline, and may be called at any time.
func (o *Outbound) Tick(now time.Duration) {
	if o.Over() || !o.begun {
		return
	}
	if now >= o.patience() {
		o.move(onTimeout, silent(o.timeout), now)
		return
	}
	if o.state != cancelling && now >= o.beat() {
		o.say(kindBeat, nil, now)
	}
}

// Deadline is when Tick must be called next.
func (o *Outbound) Deadline() time.Duration {
	if o.state == cancelling {
		return o.patience()
	}
	return min(o.patience(), o.beat())
}

func (o *Outbound) patience() time.Duration {
	if o.state == cancelling {
		return min(o.silence(), o.entered+o.timeout)
	}
	return o.silence()
}

// classify is the input that a frame is. An acknowledgement must repeat the oldest open seal.
func (o *Outbound) classify(f frame) (input, *Error) {
	switch f.kind {
	case kindAccept:
		if o.state == asking {
			o.from = int(binary.LittleEndian.Uint32(f.payload))
			o.sealed = o.from
		}
		if o.from > o.end {
			return onBad, fault(Malformed, "accepted from %d on, the end is %d", o.from, o.end)
		}
		return onAccept, nil
	case kindAck:
		s := readSeal(f.payload)
		if len(o.seals) == 0 || o.seals[0] != s {
			return onBad, fault(Digest, "the acknowledgement is not what was sealed")
		}
		o.seals = o.seals[1:]
		if s.end == o.end {
			return onLastAck, nil
		}
		return onAck, nil
	case kindTaken:
		n := binary.LittleEndian.Uint32(f.payload)
		if n <= o.taken || n > o.placed {
			return onBad, fault(Malformed, "%d were taken from the lane after %d, %d lay there",
				n, o.taken, o.placed)
		}
		o.taken = n
		return onTaken, nil
	case kindRefuse, kindCancel:
		why, ok := readReason(f.payload)
		if !ok {
			return onBad, fault(Malformed, "the reason of a frame (%v) does not add up", f.kind)
		}
		if f.kind == kindRefuse {
			return onRefuse, why
		}
		return onCancel, why
	case kindCancelled:
		return onCancelled, nil
	case kindBeat:
		return onBeat, nil
	}
	return onBad, fault(Malformed, "a frame (%v) from a receiver", f.kind)
}

// move makes a move of the table and does what it says. The first reason to fail is the one told.
func (o *Outbound) move(on input, why *Error, now time.Duration) {
	does := o.step(on, now)
	if o.why == nil {
		o.why = why
	}
	switch {
	case does.has(doCancelled):
		o.say(kindCancelled, nil, now)
	case does.has(doCancel):
		o.say(kindCancel, appendReason(nil, o.why), now)
	case o.Over():
		o.out = nil // Nobody waits for it, and a peer that is gone would only hold us up.
	}
	o.tell(does, now)
}

// tell keeps what a move has to tell the engine.
func (o *Outbound) tell(does action, now time.Duration) {
	event := Event{Direction: Sending, ID: o.id, Bytes: o.crossed, Wire: o.wire}
	switch {
	case does.has(doOpened):
		event.Kind, event.From = Opened, o.from
	case does.has(doDone):
		event.Kind = Done
		if o.began {
			event.Elapsed = now - o.first
		}
	case does.has(doFail):
		event.Kind, event.Err = Failed, o.why
	default:
		return
	}
	o.events = append(o.events, event)
}
