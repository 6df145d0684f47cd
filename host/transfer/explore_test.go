package transfer

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// search is an exploration of every state that the tables and the bounds let happen.
type search struct {
	out, in, lease *moves

	sets, epochs      int // sets of pages, reservations of each one after another
	senders, attempts int // attempts of each sender
	chunks, seats     int
	ahead             int  // a sender waits once more frames than this are on their way
	calm              bool // nothing fails and no time runs out
	sound             bool // connections are not lost

	seen  map[world]int32
	order []world
	cause []origin
	used  [3][states][inputs]bool // moves of sender, receiver, lease
	fair  [][]int32               // where the fair steps of each state lead
}

// origin is how a state was reached first.
type origin struct {
	from int32
	step string
}

// fullSearch has the bounds of the project's test: two senders, two reservations of the same
// pages, three chunks.
func fullSearch() *search {
	return &search{
		out: senderTable, in: receiverTable, lease: leaseTable,
		sets: 1, epochs: 2, senders: 2, attempts: 1, chunks: 3, seats: 1, ahead: 1,
	}
}

// then is one thing that may happen. Fair ones happen sooner or later if nothing else does.
type then struct {
	name string
	fair bool
	do   func(s *scene)
}

// possible is all that may happen next.
func (s *search) possible(w *world) (list []then) {
	for i := range s.sets {
		list = append(list, s.ofLease(w, i)...)
	}
	for c := range s.senders {
		list = append(list, s.ofSender(w, c)...)
		list = append(list, s.ofReceiver(w, c)...)
		list = append(list, s.ofWire(w, c)...)
	}
	return list
}

// ofLease: the engine reserves, releases; time runs out.
func (s *search) ofLease(w *world, i int) (list []then) {
	l := &w.leases[i]
	if (l.state == none || l.state == gone) && int(l.epoch) < s.epochs {
		list = append(list, then{"reserve", false, func(x *scene) {
			l := &x.leases[i]
			l.state, l.from = granted, 0
			l.epoch++
		}})
	}
	if s.calm || l.state == none {
		return list
	}
	if s.lease[l.state][onRelease].to != none {
		list = append(list, then{"release", false, func(x *scene) { x.release(i) }})
	}
	if s.lease[l.state][onExpire].to != none {
		list = append(list, then{"expire", true, func(x *scene) {
			x.moveLease(&x.leases[i], onExpire)
		}})
	}
	return list
}

// release is what Receiver.Release does: the ledger moves at once, the writer hears of it later.
func (s *scene) release(i int) {
	l := &s.leases[i]
	attached := l.state == writing || l.state == quarantined
	s.moveLease(l, onRelease)
	for c := range s.links {
		if attached && s.writer(c) == l {
			s.links[c].withdrawn = true
		}
	}
}

// ofSender: it opens a connection, sends, hears, gives up.
func (s *search) ofSender(w *world, c int) (list []then) {
	k := &w.links[c]
	if outOver(k.out) && inOver(k.in) && int(w.tried[c]) < s.attempts {
		for i := range s.sets {
			for epoch := uint8(1); epoch <= w.leases[i].epoch; epoch++ {
				list = append(list, then{"open", false, func(x *scene) {
					x.tried[c]++
					x.links[c] = linkView{lease: uint8(i), epoch: epoch, out: asking, in: expecting}
					x.send(x.links[c].there[:], c, message{kind: openLetter})
				}})
			}
		}
	}
	if outOver(k.out) {
		return list
	}
	roomy := !k.shelf || k.next%2 == 1
	if k.out == writing && roomy && k.there[s.ahead].kind == noLetter {
		list = append(list, then{"send", true, func(x *scene) { x.emit(c) }})
	}
	if k.back[0].kind != noLetter {
		list = append(list, then{"hear", true, func(x *scene) { x.hear(c) }})
	}
	if k.back[0].kind == noLetter && !k.silent && (k.cut || inOver(k.in)) {
		list = append(list, then{"sender's end", true, func(x *scene) { x.moveOut(c, onClosed) }})
	}
	if !s.calm {
		if s.out[k.out][onGiveUp].to != none {
			list = append(list, then{"give up", false, func(x *scene) { x.moveOut(c, onGiveUp) }})
		}
		if s.out[k.out][onTimeout].to != none {
			list = append(list,
				then{"sender's time", true, func(x *scene) { x.moveOut(c, onTimeout) }})
		}
	}
	return list
}

// emit sends the next chunk or its seal.
func (s *scene) emit(c int) {
	k := &s.links[c]
	chunk, last := k.next/2, int(k.next/2) == s.chunks-1
	switch {
	case k.next%2 == 0 && chunk > 0:
		k.lane, k.shelf = chunk+1, true
		s.send(k.there[:], c, message{placedLetter, chunk})
	case k.next%2 == 0:
		s.send(k.there[:], c, message{dataLetter, chunk})
	case last:
		s.send(k.there[:], c, message{lastSealLetter, chunk})
		s.moveOut(c, onFinish)
	default:
		s.send(k.there[:], c, message{sealLetter, chunk})
	}
	k.next++
}

// hear gives the sender the first frame that came back.
func (s *scene) hear(c int) {
	k := &s.links[c]
	m := pop(k.back[:])
	on := means[m.kind]
	if s.out[k.out][on].to == none {
		on = onBad
	}
	if on == onTaken {
		k.shelf = false
	}
	if on == onAccept && k.out == asking {
		k.next = 2 * m.chunk
	}
	s.moveOut(c, on)
}

// ofReceiver: it hears, ends a write, seats who waits, hears of a release, runs out of patience.
func (s *search) ofReceiver(w *world, c int) (list []then) {
	k := &w.links[c]
	if inOver(k.in) {
		return nil
	}
	if k.mid {
		return []then{{"store", true, func(x *scene) { x.store(c) }}}
	}
	if k.there[0].kind != noLetter {
		list = append(list, then{"take", true, func(x *scene) { x.take(c) }})
	}
	if k.there[0].kind == noLetter && !k.silent && (k.cut || outOver(k.out)) {
		list = append(list, then{"receiver's end", true, func(x *scene) {
			x.moveIn(c, onClosed, 0)
		}})
	}
	if k.in == queued {
		list = append(list, then{"seat", true, func(x *scene) {
			if x.takeSeat(c) {
				x.moveIn(c, onRoom, 0)
			}
		}})
	}
	if k.withdrawn {
		list = append(list, then{"withdraw", true, func(x *scene) {
			x.links[c].withdrawn = false
			if x.in[x.links[c].in][onRelease].to != none {
				x.moveIn(c, onRelease, 0)
			}
		}})
	}
	if !s.calm && s.in[k.in][onTimeout].to != none {
		list = append(list,
			then{"receiver's time", true, func(x *scene) { x.moveIn(c, onTimeout, 0) }})
	}
	return list
}

// take gives the receiver's end the first frame that came. A refusing end throws it away.
func (s *scene) take(c int) {
	k := &s.links[c]
	m := pop(k.there[:])
	if k.in == refused {
		return
	}
	s.moveIn(c, s.try(c, means[m.kind], m.chunk), m.chunk)
}

// ofWire: the connection is cut, or nothing comes through any more, or a frame arrives damaged. A
// process that crashes is a cut that its own end notices before anything else happens, a machine
// that does is one that fell silent.
func (s *search) ofWire(w *world, c int) (list []then) {
	k := &w.links[c]
	if s.calm || k.cut || outOver(k.out) && inOver(k.in) {
		return nil
	}
	if !s.sound {
		list = append(list, then{"cut", false, func(x *scene) { x.sever(c) }})
		list = append(list, then{"fall silent", false, func(x *scene) {
			x.sever(c)
			x.links[c].silent = true
		}})
	}
	if k.there[0].kind != noLetter && k.there[0].kind != garbage {
		list = append(list, then{"damage", false, func(x *scene) {
			x.links[c].there[0] = message{kind: garbage}
		}})
	}
	if k.back[0].kind != noLetter && k.back[0].kind != garbage {
		list = append(list, then{"damage", false, func(x *scene) {
			x.links[c].back[0] = message{kind: garbage}
		}})
	}
	return list
}

// sever loses what is on its way.
func (s *scene) sever(c int) {
	k := &s.links[c]
	k.cut, k.there, k.back = true, [thereRoom]message{}, [backRoom]message{}
}

// explore visits every state, and answers with the broken rule and the steps to it, or nothing.
func (s *search) explore() []string {
	s.seen = map[world]int32{{}: 0}
	s.order, s.cause, s.fair = []world{{}}, []origin{{from: -1}}, nil
	for at := 0; at < len(s.order); at++ {
		from := s.order[at]
		var fair []int32
		for _, t := range s.possible(&from) {
			x := scene{world: from, search: s}
			t.do(&x)
			x.check()
			x.forget()
			if x.wrong != "" {
				return append(s.trace(int32(at)), t.name, x.wrong)
			}
			to, ok := s.seen[x.world]
			if !ok {
				to = int32(len(s.order))
				s.seen[x.world] = to
				s.order = append(s.order, x.world)
				s.cause = append(s.cause, origin{int32(at), t.name})
			}
			if t.fair && int(to) != at {
				fair = append(fair, to)
			}
		}
		s.fair = append(s.fair, fair)
	}
	return s.progress()
}

func (s *search) trace(at int32) (steps []string) {
	for ; s.cause[at].from >= 0; at = s.cause[at].from {
		steps = append(steps, s.cause[at].step)
	}
	slices.Reverse(steps)
	return steps
}

// progress says that from every state, if only fair things happen, they end, and end well: every
// run of fair steps is finite, and where none is left nothing is held by anybody.
func (s *search) progress() []string {
	const (
		fresh = iota
		open
		finished
	)
	colour := make([]uint8, len(s.order))
	type visit struct {
		at   int32
		next []int32
	}
	for start := range s.order {
		if colour[start] != fresh {
			continue
		}
		colour[start] = open
		stack := []visit{{int32(start), s.fair[start]}}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.next) == 0 {
				colour[top.at] = finished
				stack = stack[:len(stack)-1]
				continue
			}
			to := top.next[0]
			top.next = top.next[1:]
			switch colour[to] {
			case open:
				return append(s.trace(to), "fair steps go round in a circle")
			case fresh:
				if why := s.unsettled(to); why != "" {
					return append(s.trace(to), why)
				}
				colour[to] = open
				stack = append(stack, visit{to, s.fair[to]})
			}
		}
	}
	return nil
}

// unsettled says what is left where no fair step is, if anything.
func (s *search) unsettled(at int32) string {
	if len(s.fair[at]) > 0 {
		return ""
	}
	w := &s.order[at]
	for i := range w.leases {
		l := &w.leases[i]
		if asked, heard := s.askers(w, i); s.calm && asked && (l.state != sealed || !heard) {
			return "nothing failed, and a lease was not delivered, or no sender heard of it"
		}
		if !s.calm && l.state != none && l.state != gone {
			return "a lease is held for ever: " + l.state.String()
		}
	}
	for c := range w.links {
		if k := &w.links[c]; !outOver(k.out) || !inOver(k.in) || k.seated {
			return "a connection is held for ever: " + k.out.String() + ", " + k.in.String()
		}
	}
	return ""
}

// askers says whether a sender tried to write the present reservation, and whether one was done.
func (s *search) askers(w *world, i int) (asked, heard bool) {
	for c := range w.links {
		k := &w.links[c]
		if k.out != none && int(k.lease) == i && k.epoch == w.leases[i].epoch {
			asked, heard = true, heard || k.out == done
		}
	}
	return asked, heard
}

// The protocol, explored to the last state: no page leaks, none is written by who lost it, nothing
// is decoded that was not delivered, no writer is fenced that could still write, and from
// everywhere fair steps lead to the end. Crashes, cuts, damage, silence, cancels and releases may
// happen at any time. ENGINE_LONG=1 explores larger bounds.
func TestEveryStateOfTheProtocol(t *testing.T) {
	if raced {
		t.Skip("one goroutine, many states")
	}
	bounds := map[string]func(*search){
		"two reservations of the same pages": func(s *search) { s.chunks = 1 },
		"two chunks, resumed by another":     func(s *search) { s.epochs, s.chunks = 1, 2 },
		"two leases and one seat": func(s *search) {
			s.sets, s.epochs, s.chunks, s.sound = 2, 1, 1, true
		},
	}
	if os.Getenv("ENGINE_LONG") != "" {
		bounds["three chunks"] = func(s *search) {}
		bounds["two leases and one seat"] = func(s *search) { s.sets, s.epochs, s.chunks = 2, 1, 1 }
		bounds["three attempts"] = func(s *search) { s.senders, s.attempts = 1, 3 }
	}
	used, ran := fullSearch().used, 0
	for name, set := range bounds {
		t.Run(name, func(t *testing.T) {
			s := fullSearch()
			s.used = used
			set(s)
			if steps := s.explore(); steps != nil {
				t.Fatalf("after %d states: %s", len(s.order), strings.Join(steps, " > "))
			}
			t.Logf("%d states", len(s.order))
			used, ran = s.used, ran+1
		})
	}
	for i, list := range [][]move{senderMoves, receiverMoves, leaseMoves} {
		if ran < len(bounds) {
			break // Not all was asked for, or something is wrong already.
		}
		for _, m := range list {
			if m.on != onBeat && m.on != onNearby && !used[i][m.from][m.on] {
				t.Errorf("no state is left by %v on %v", m.from, m.on)
			}
		}
	}
}

// Where nothing fails and no time runs out, whatever a sender began is delivered.
func TestCalmTransfersAreDelivered(t *testing.T) {
	s := fullSearch()
	s.calm = true
	if steps := s.explore(); steps != nil {
		t.Fatalf("after %d states: %s", len(s.order), strings.Join(steps, " > "))
	}
	t.Logf("%d states", len(s.order))
}
