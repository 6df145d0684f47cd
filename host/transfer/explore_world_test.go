package transfer

// This is the protocol without bytes: the three tables, what stands between them, and all that can
// happen. A chunk is one data frame and its seal; positions are chunks; a lease's pages are one
// memory of so many chunks that the next reservation gets again.

const (
	mostLeases  = 2
	mostSenders = 2
	mostChunks  = 3
	thereRoom   = 6 // frames on their way to a receiver
	backRoom    = 9
)

// frames on their way. A frame about a chunk has its number beside it.
type letterKind uint8

const (
	noLetter letterKind = iota
	openLetter
	dataLetter
	sealLetter
	lastSealLetter
	acceptLetter
	ackLetter
	lastAckLetter
	refuseLetter
	cancelLetter
	cancelledLetter
	placedLetter
	takenLetter
	garbage
)

// means is the input that a frame is.
var means = [...]input{openLetter: onOpen, dataLetter: onData, sealLetter: onSeal,
	lastSealLetter: onLastSeal, acceptLetter: onAccept, ackLetter: onAck, lastAckLetter: onLastAck,
	refuseLetter: onRefuse, cancelLetter: onCancel, cancelledLetter: onCancelled,
	placedLetter: onPlaced, takenLetter: onTaken, garbage: onBad}

type message struct {
	kind  letterKind
	chunk uint8
}

// leaseView is one set of pages and its present reservation.
type leaseView struct {
	state     state // none: never granted
	epoch     uint8
	from      uint8             // chunks below are sealed
	delivered uint8             // epochs that were, as bits
	freed     uint8             // epochs whose pages the engine has again, as bits
	pages     [mostChunks]uint8 // the epoch that wrote a chunk last
}

// linkView is a sender's present attempt, with both ends and what is between them.
type linkView struct {
	lease, epoch uint8 // what it was told to write
	out, in      state // none: no attempt yet
	cut          bool  // nothing arrives any more
	silent       bool  // nor does either end hear that the other has gone
	holds        bool  // the receiver's end is the lease's writer, or was
	seated       bool
	withdrawn    bool  // the lease was released and the receiver's end has not heard
	mid          bool  // the receiver's end is in the middle of writing a chunk
	byLane       bool  // and it is read from the lane
	lane         uint8 // what lies in the lane, which has room for one chunk: its number and one
	shelf        bool  // the sender has not heard that it was taken
	next         uint8 // the sender's next frame: 2*chunk, and one more when its seal is due
	got          uint8 // chunks below are in the pages
	there        [thereRoom]message
	back         [backRoom]message
}

// world is a state of everything. It is comparable: two worlds that are equal are one state.
type world struct {
	leases [mostLeases]leaseView
	links  [mostSenders]linkView
	tried  [mostSenders]uint8
}

// scene is a world that something is happening to, under the tables and the bounds of a search.
type scene struct {
	world
	*search
	wrong string // the first rule that was broken
}

func (s *scene) fault(what string) {
	if s.wrong == "" {
		s.wrong = what
	}
}

// send puts a frame on its way; what is said to a connection that was cut is lost.
func (s *scene) send(queue []message, c int, m message) {
	if s.links[c].cut {
		return
	}
	for i := range queue {
		if queue[i].kind == noLetter {
			queue[i] = m
			return
		}
	}
	s.fault("a queue of frames has no bound")
}

func pop(queue []message) message {
	first := queue[0]
	copy(queue, queue[1:])
	queue[len(queue)-1] = message{}
	return first
}

func outOver(s state) bool { return s == none || s == done || s == failed }
func inOver(s state) bool  { return s == none || s == closed }

// writer is the lease that a connection writes, if it is still the reservation it was.
func (s *scene) writer(c int) *leaseView {
	k := &s.links[c]
	if l := &s.leases[k.lease]; k.holds && l.epoch == k.epoch {
		return l
	}
	return nil
}

// moveLease does what the lease's table says.
func (s *scene) moveLease(l *leaseView, on input) bool {
	row := s.lease[l.state][on]
	if row.to == none {
		return false
	}
	s.used[2][l.state][on] = true
	l.state = row.to
	if row.does.has(doFree) {
		s.free(l)
	}
	if row.to == gone && !row.does.has(doFree) {
		s.fault("a lease ended and nobody was given its pages")
	}
	return true
}

// free gives a lease's pages to the engine: nobody may be able to write them.
func (s *scene) free(l *leaseView) {
	if l.freed&(1<<l.epoch) != 0 {
		s.fault("pages were freed twice")
	}
	l.freed |= 1 << l.epoch
	for c := range s.links {
		k := &s.links[c]
		if s.writer(c) == l && (k.mid || k.in == writing || k.in == queued) {
			s.fault("pages were freed while a writer could reach them")
		}
	}
}

// moveOut moves a sender.
func (s *scene) moveOut(c int, on input) {
	k := &s.links[c]
	row := s.out[k.out][on]
	if row.to == none {
		s.fault("a sender has no move from " + k.out.String() + " on " + on.String())
		return
	}
	s.used[0][k.out][on] = true
	k.out = row.to
	if row.does.has(doCancel) {
		s.send(k.there[:], c, message{kind: cancelLetter})
	}
	if row.does.has(doCancelled) {
		s.send(k.there[:], c, message{kind: cancelledLetter})
	}
	if row.does.has(doDone) && s.leases[k.lease].delivered&(1<<k.epoch) == 0 {
		s.fault("a sender was done before its lease was delivered")
	}
}

// moveIn moves a receiver's end; about is the chunk that the input is about.
func (s *scene) moveIn(c int, on input, about uint8) {
	k := &s.links[c]
	row := s.in[k.in][on]
	if row.to == none {
		s.fault("a receiver has no move from " + k.in.String() + " on " + on.String())
		return
	}
	s.used[1][k.in][on] = true
	k.in = row.to
	for _, say := range []struct {
		does action
		kind letterKind
	}{
		{doAccept, acceptLetter}, {doRefuse, refuseLetter}, {doCancel, cancelLetter},
		{doCancelled, cancelledLetter},
	} {
		if row.does.has(say.does) {
			s.send(k.back[:], c, message{say.kind, k.got})
		}
	}
	if row.does.has(doAck) {
		kind := ackLetter
		if on == onLastSeal {
			kind = lastAckLetter
		}
		s.send(k.back[:], c, message{kind, about})
	}
	if l := s.writer(c); l != nil && row.does.has(doFail) {
		s.moveLease(l, onFail)
	}
	if row.does.has(doFence) {
		s.fence(c)
	}
}

// fence is what Ledger.leave does.
func (s *scene) fence(c int) {
	k := &s.links[c]
	if k.in != closed {
		s.fault("a writer was fenced whose connection is open")
	}
	l := s.writer(c)
	if l != nil {
		k.seated = false
		s.moveLease(l, onFenced)
	}
}

// takeSeat is what Ledger.seat does.
func (s *scene) takeSeat(c int) bool {
	taken := 0
	for i := range s.links {
		if s.links[i].seated {
			taken++
		}
	}
	if taken >= s.seats {
		return false
	}
	s.links[c].seated = true
	return true
}

// try does what must be done before a receiver's move, as Inbound.obey does, and says what the
// input is then.
func (s *scene) try(c int, on input, about uint8) input {
	k := &s.links[c]
	does := s.in[k.in][on].does
	switch {
	case s.in[k.in][on].to == none:
		return onBad
	case does.has(doAttach):
		l := &s.leases[k.lease]
		if l.epoch != k.epoch || !s.moveLease(l, onOpen) {
			return onBad
		}
		k.holds, k.got = true, l.from
		if does.has(doSeat) && !s.takeSeat(c) {
			return onFull
		}
	case does.has(doWrite):
		if l := s.writer(c); l == nil || l.state != writing || about != k.got {
			return onBad
		}
		k.mid, k.byLane = true, on == onPlaced
	case does.has(doKeep), does.has(doDeliver):
		return s.trySeal(c, on, about)
	}
	return on
}

func (s *scene) trySeal(c int, on input, about uint8) input {
	k, l := &s.links[c], s.writer(c)
	if l == nil || k.got != about+1 {
		return onBad
	}
	if s.in[k.in][on].does.has(doKeep) {
		if !s.moveLease(l, onSeal) {
			return onBad
		}
		l.from = about + 1
		return on
	}
	if !s.moveLease(l, onLastSeal) {
		return onBad
	}
	k.seated = false
	l.delivered |= 1 << l.epoch
	return on
}

// store ends the write of a chunk.
func (s *scene) store(c int) {
	k := &s.links[c]
	l := &s.leases[k.lease]
	k.mid = false
	if k.byLane {
		if k.lane != k.got+1 {
			s.fault("a chunk was overwritten in the lane before it was taken")
		}
		if k.byLane = false; k.in == writing {
			s.send(k.back[:], c, message{kind: takenLetter})
		}
	}
	if l.epoch != k.epoch || l.freed&(1<<k.epoch) != 0 {
		s.fault("a chunk was written into pages of somebody else")
	}
	if l.delivered&(1<<k.epoch) != 0 {
		s.fault("a chunk was written after the delivery")
	}
	l.pages[k.got] = k.epoch
	k.got++
}

// check says what must hold in every state.
func (s *scene) check() {
	for i := range s.leases {
		l := &s.leases[i]
		if l.state != sealed || l.delivered&(1<<l.epoch) == 0 {
			continue
		}
		for chunk := range s.chunks {
			if l.pages[chunk] != l.epoch {
				s.fault("decoded from pages that were not written")
			}
		}
	}
	for c := range s.links {
		if k := &s.links[c]; k.mid && inOver(k.in) {
			s.fault("a writer is in the middle of a page after its connection was closed")
		}
	}
}

// forget makes states equal that differ only in what nobody will look at any more, and in which
// sender is the first.
func (s *scene) forget() {
	for c := range s.links {
		k := &s.links[c]
		if inOver(k.in) || k.in == refused {
			k.there, k.got = [thereRoom]message{}, 0
		}
		if k.in == cancelling {
			k.there = s.keepEnds(k.there)
		}
		if outOver(k.out) {
			k.back, k.next, k.shelf = [backRoom]message{}, 0, false
		}
		if inOver(k.in) {
			k.holds, k.withdrawn = false, false
			if outOver(k.out) && !s.calm {
				*k = linkView{}
			}
		}
	}
	for i := range s.leases {
		if l := &s.leases[i]; l.state == gone {
			l.from = 0
		}
	}
	if s.senders > 1 && s.rank(1) < s.rank(0) {
		s.links[0], s.links[1] = s.links[1], s.links[0]
		s.tried[0], s.tried[1] = s.tried[1], s.tried[0]
	}
}

// keepEnds drops the frames that a cancelling end throws away.
func (s *scene) keepEnds(queue [thereRoom]message) (kept [thereRoom]message) {
	n := 0
	for _, m := range queue {
		on := means[m.kind]
		frame := on == onData || on == onPlaced || on == onSeal || on == onLastSeal
		if frame && s.in[cancelling][on].to == cancelling {
			s.used[1][cancelling][on] = true
			continue
		}
		kept[n] = m
		n++
	}
	return kept
}

// rank orders the senders by what they are doing.
func (s *scene) rank(c int) uint64 {
	k := &s.links[c]
	sum := uint64(s.tried[c])
	for _, part := range []uint8{uint8(k.out), uint8(k.in), k.lease, k.epoch, k.next, k.got,
		uint8(k.there[0].kind), uint8(k.back[0].kind)} {
		sum = sum<<7 | uint64(part)
	}
	return sum
}
