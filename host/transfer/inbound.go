package transfer

import (
	"encoding/binary"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
)

// pollTime is how often a queued writer asks for a seat.
const pollTime = 20 * time.Millisecond

// desk is what an Inbound asks of the Ledger: to let it come and go, to say whether pages are still
// the writer's, and to take an outcome (it may refuse a seal).
type desk interface {
	door
	current(epoch uint64, model, from, end int) *Error
	settle(epoch uint64, o outcome, now time.Duration) *Error
}

// door is where a writer comes and goes: judge its opening frame, find it a seat, note that it is
// fenced.
type door interface {
	open(o *opening, now time.Duration) (*grant, *Error)
	seat(epoch uint64) bool
	leave(epoch uint64, now time.Duration)
}

// Inbound is the receiver's end of one connection. It is pure: bytes and the time go in, bytes come
// out (Output), keys and values go to the Pages, and the Ledger hears the rest.
type Inbound struct {
	line
	desk   desk
	models []Model
	way    way
	lane   Lane // of the connection; none has no bytes

	grant  *grant  // nil until the opening frame was judged right
	next   [][]int // [model][layer] the position that must come next
	sum    digest  // of all data frames since the opening
	bytes  int64   // of their keys and values
	taken  uint32  // placed frames whose keys and values lie in their pages
	acked  seal    // the last that was found right
	first  time.Duration
	asked  time.Duration // last for a seat
	placed bool          // first is set
	ranges []kvcache.SlotRange
}

// Connect is the receiver's end of a new connection.
func (l *Ledger) Connect(now time.Duration) *Inbound { return newInbound(l, l.options, now) }

func newInbound(d desk, o ReceiverOptions, now time.Duration) *Inbound {
	return &Inbound{
		line: line{
			state: expecting, table: receiverTable, timeout: o.Timeout,
			heard: now, said: now, entered: now,
		},
		desk: d, models: o.Models, way: o.way(),
	}
}

// Over says that the connection is to be closed once Output is written.
func (in *Inbound) Over() bool { return in.state == closed }

// Epoch is that of the lease being written, 0 while there is none.
func (in *Inbound) Epoch() uint64 { return in.pass.epoch }

// Filled says that n bytes from the connection were put in Space.
func (in *Inbound) Filled(n int, now time.Duration) {
	in.heard = now
	if in.deaf() {
		return
	}
	in.wire += int64(n)
	in.dec.filled(n)
	for !in.deaf() {
		f, ok, bad := in.dec.next(in.pass)
		if bad != nil {
			in.move(onBad, bad, now)
		} else if !ok {
			return
		} else {
			in.take(f, now)
		}
	}
}

// Take gives the bytes that came from the connection, as Space and Filled do.
func (in *Inbound) Take(bytes []byte, now time.Duration) {
	feed(bytes, in.Space, func(n int) { in.Filled(n, now) })
}

// Tick is to be called at Deadline, and may be called at any time.
func (in *Inbound) Tick(now time.Duration) {
	if in.state == closed {
		return
	}
	if now >= in.patience() {
		in.move(onTimeout, silent(in.timeout), now)
		return
	}
	if in.state == queued {
		in.asked = now
		if in.desk.seat(in.pass.epoch) {
			in.move(onRoom, nil, now)
			return
		}
	}
	if (in.state == queued || in.state == writing) && now >= in.beat() {
		in.say(kindBeat, nil, now)
	}
}

// Deadline is when Tick must be called next.
func (in *Inbound) Deadline() time.Duration {
	switch in.state {
	case queued:
		return min(in.patience(), in.beat(), in.asked+pollTime)
	case writing:
		return min(in.patience(), in.beat())
	}
	return in.patience()
}

// patience is when this state has lasted too long.
func (in *Inbound) patience() time.Duration {
	switch in.state {
	case queued, writing:
		return in.silence()
	case refused:
		return in.entered + min(lingerTime, in.timeout)
	}
	return in.entered + in.timeout
}

// Closed says that the connection ended.
func (in *Inbound) Closed(now time.Duration) {
	if in.state != closed {
		in.move(onClosed, fault(Reset, "the sender's connection ended"), now)
	}
}

// Withdraw says that the lease was released: nothing is written from now on, and the sender is
// told.
func (in *Inbound) Withdraw(now time.Duration) {
	if in.can(onRelease) {
		in.move(onRelease, fault(Cancelled, "the reservation was released"), now)
	}
}

// take judges a frame, does what it asks, and moves.
func (in *Inbound) take(f frame, now time.Duration) {
	on, why := in.classify(f)
	if on != onBad && !in.can(on) {
		on, why = onBad, in.unexpected(f.kind)
	}
	if on != onBad {
		on, why = in.obey(on, f, now)
	}
	in.move(on, why, now)
}

// classify is the input that a frame is, by its kind and its payload alone.
func (in *Inbound) classify(f frame) (input, *Error) {
	switch f.kind {
	case kindOpen:
		return onOpen, nil
	case kindData:
		return onData, nil
	case kindPlaced:
		return onPlaced, nil
	case kindSeal:
		if in.grant != nil && readSeal(f.payload).end == in.grant.window.End {
			return onLastSeal, nil
		}
		return onSeal, nil
	case kindCancel:
		return onCancel, nil
	case kindCancelled:
		return onCancelled, nil
	case kindBeat:
		return onBeat, nil
	case kindNearby:
		return onNearby, nil
	}
	return onBad, fault(Malformed, "a frame (%v) from a sender", f.kind)
}

// obey tries what the move for a frame must do first. What cannot be done becomes onBad, an opening
// frame for which there is no seat onFull.
func (in *Inbound) obey(on input, f frame, now time.Duration) (input, *Error) {
	does := in.does(on)
	var bad *Error
	switch {
	case does.has(doAttach):
		bad = in.open(f, now)
		if bad == nil && does.has(doSeat) && !in.desk.seat(in.pass.epoch) {
			return onFull, nil
		}
	case does.has(doWrite):
		bad = in.write(f, now)
	case does.has(doKeep | doDeliver):
		bad = in.seal(readSeal(f.payload), does.has(doDeliver), now)
	case on == onCancel:
		why, ok := readReason(f.payload)
		if ok {
			return on, why
		}
		bad = fault(Malformed, "the reason of a cancel does not add up")
	}
	if bad != nil {
		return onBad, bad
	}
	return on, nil
}

func (in *Inbound) open(f frame, now time.Duration) *Error {
	o, bad := readOpening(f)
	if bad != nil {
		return bad
	}
	g, bad := in.desk.open(o, now)
	if bad != nil {
		return bad
	}
	in.grant, in.pass, in.asked = g, g.pass, now
	in.acked.end = g.from
	return nil
}

// begin readies the counters and lets data frames in.
func (in *Inbound) begin(now time.Duration) {
	in.next = make([][]int, len(in.models))
	var most int64
	for m := range in.models {
		l := &in.grant.layouts[m]
		most = max(most, int64(l.sent(in.grant.from))*int64(l.slotBytes))
		in.next[m] = make([]int, l.layers)
		for layer := range in.next[m] {
			in.next[m][layer] = l.due(in.grant.from)
		}
	}
	in.dec.bound = int(min(most, MaxFrame))
	in.say(kindAccept, binary.LittleEndian.AppendUint32(nil, uint32(in.grant.from)), now)
}

// write puts the keys and values of a data or placed frame into the pages, if they are exactly the
// ones that are due: the next positions of their layer, all of them reserved.
func (in *Inbound) write(f frame, now time.Duration) *Error {
	p := readPlace(f.payload)
	if p.model >= len(in.models) || p.layer >= in.grant.layouts[p.model].layers {
		return fault(OutOfPlace, "model %d layer %d", p.model, p.layer)
	}
	l, next := &in.grant.layouts[p.model], &in.next[p.model][p.layer]
	if p.position != *next {
		return fault(OutOfPlace, "model %d layer %d: position %d, due is %d",
			p.model, p.layer, p.position, *next)
	}
	size := p.count * l.slotBytes
	if p.count < 1 || p.count > l.window.End-p.position ||
		f.kind == kindData && len(f.payload)-dataHead != size {
		return fault(OutOfPlace, "model %d layer %d: %d positions from %d on in %d bytes",
			p.model, p.layer, p.count, p.position, len(f.payload)-dataHead)
	}
	end := p.position + p.count
	if l.reach(p.position, end) != end {
		return fault(OutOfPlace, "model %d: positions of [%d, %d) are not sent",
			p.model, p.position, end)
	}
	if bad := in.desk.current(in.pass.epoch, p.model, p.position, end); bad != nil {
		return bad
	}
	if !in.placed {
		in.first, in.placed = now, true
	}
	in.sum = in.sum.add(leafOf(f.payload))
	in.bytes += int64(size)
	if bad := in.deliver(f, p, l); bad != nil {
		return bad
	}
	*next = l.due(end)
	return nil
}

// deliver takes what a frame brings to its pages.
func (in *Inbound) deliver(f frame, p place, l *layout) *Error {
	pages := in.models[p.model].Pages
	in.ranges = in.ranges[:0]
	if f.kind == kindPlaced {
		in.ranges = l.laneRanges(in.ranges, p.position, p.position+p.count)
		return in.lane.take(pages, p.layer, in.ranges,
			roomAt{readLaneAt(f.payload), p.count * l.slotBytes})
	}
	for at, end := p.position, p.position+p.count; at < end; {
		r := l.run(at, end)
		in.ranges = append(in.ranges, r)
		at += r.Count
	}
	return writeRanges(pages, p.layer, in.ranges, f.payload[dataHead:])
}

// writeRanges puts the bytes of a data frame into their pages.
func writeRanges(pages Pages, layer int, ranges []kvcache.SlotRange, kv []byte) *Error {
	if ranged, ok := pages.(RangedPages); ok {
		if err := ranged.WriteRanges(layer, ranges, kv); err != nil {
			return fault(PageFault, "write layer %d of %d pages: %v", layer, len(ranges), err)
		}
		return nil
	}
	slots := 0
	for _, r := range ranges {
		slots += r.Count
	}
	for size := len(kv) / slots; len(ranges) > 0; ranges = ranges[1:] {
		n := ranges[0].Count * size
		if err := pages.WritePage(layer, ranges[0], kv[:n]); err != nil {
			return fault(PageFault, "write layer %d of page %d: %v", layer, ranges[0].Page, err)
		}
		kv = kv[n:]
	}
	return nil
}

// seal checks that nothing below the seal is missing and that both ends hold the same.
func (in *Inbound) seal(s seal, last bool, now time.Duration) *Error {
	if w := in.grant.window; s.end > w.End || !last && s.end <= in.acked.end {
		return fault(OutOfPlace, "a seal at %d after one at %d, the window ends at %d",
			s.end, in.acked.end, w.End)
	}
	for m := range in.next {
		due := in.grant.layouts[m].due(s.end)
		for layer, next := range in.next[m] {
			if next != due {
				return fault(OutOfPlace, "model %d layer %d: sealed below %d, but %d is due",
					m, layer, s.end, next)
			}
		}
	}
	if s.bytes != in.bytes || s.digest != in.sum {
		return fault(Digest, "%d bytes sent, %d arrived", s.bytes, in.bytes)
	}
	o := outcome{end: s.end, last: last, bytes: in.bytes, wire: in.wire}
	if in.placed {
		o.elapsed = now - in.first
	}
	in.acked = s
	return in.desk.settle(in.pass.epoch, o, now)
}

// move makes a move of the table and does what it says. why says what was wrong, where it was.
func (in *Inbound) move(on input, why *Error, now time.Duration) {
	does := in.step(on, now)
	switch {
	case does.has(doAccept):
		in.begin(now)
	case does.has(doTaken):
		in.taken++
		in.say(kindTaken, binary.LittleEndian.AppendUint32(nil, in.taken), now)
	case does.has(doAck):
		in.say(kindAck, in.acked.append(nil), now)
	case does.has(doRefuse):
		in.say(kindRefuse, appendReason(nil, why), now)
	case does.has(doCancel):
		in.say(kindCancel, appendReason(nil, why), now)
	case does.has(doCancelled):
		in.say(kindCancelled, nil, now)
	case does.has(doWay):
		in.say(kindWay, in.way.append(nil), now)
	}
	if in.grant == nil { // Refused before it had a lease.
		return
	}
	if does.has(doFail) {
		o := outcome{bytes: in.bytes, wire: in.wire, err: why}
		in.desk.settle(in.pass.epoch, o, now)
	}
	if does.has(doFence) {
		in.desk.leave(in.pass.epoch, now)
	}
}
