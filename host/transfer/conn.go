package transfer

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// newClock counts from now on.
func newClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// past makes a blocked read or write return at once.
var past = time.Unix(1, 0)

// expire lets leases expire until the receiver is closed.
func (r *Receiver) expire() {
	ticker := time.NewTicker(max(r.options.Lease/16, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.tick()
		case <-r.stop:
			return
		}
	}
}

// inlink is a connection of the receiver. Its goroutine owns the machine; others may withdraw.
type inlink struct {
	conn      net.Conn
	by        Transport
	withdrawn atomic.Bool
}

// withdraw wakes the goroutine to tell its machine that the lease was released.
func (l *inlink) withdraw() {
	l.withdrawn.Store(true)
	_ = l.conn.SetReadDeadline(past)
}

// Serve speaks the protocol with one sender until it is over, and closes the connection. Head is
// what was read of it already.
func (r *Receiver) Serve(conn net.Conn, head []byte) {
	link := &inlink{conn: conn, by: transportOf(conn)}
	defer conn.Close()
	if !r.add(link) {
		return
	}
	defer r.drop(link)
	in := newInbound(counter{r, link}, r.options, r.clock())
	in.lane, _ = laneOf(conn)
	for len(head) > 0 {
		n := copy(in.Space(), head)
		in.Filled(n, r.clock())
		head = head[n:]
	}
	for r.flush(in, conn) && !in.Over() {
		_ = conn.SetReadDeadline(time.Now().Add(in.Deadline() - r.clock()))
		if link.withdrawn.Swap(false) {
			in.Withdraw(r.clock())
			continue
		}
		n, err := conn.Read(in.Space())
		now := r.clock()
		if n > 0 {
			in.Filled(n, now)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			in.Closed(now)
		}
		in.Tick(now)
	}
	in.Closed(r.clock())
}

// flush writes what the machine has to say. False: the connection is of no use any more.
func (r *Receiver) flush(in *Inbound, conn net.Conn) bool {
	for len(in.Output()) > 0 {
		_ = conn.SetWriteDeadline(time.Now().Add(r.options.Timeout))
		n, err := conn.Write(in.Output())
		in.Written(n)
		if err != nil {
			return false
		}
	}
	return true
}

// run is the life of a transfer: wait for a place, dial, carry, tell.
func (s *Sender) run(o *Outgoing) {
	ticket := s.gate.enter(o.waiting())
	var by Transport
	select {
	case <-ticket.admitted:
		if conn, bad := s.dial(o); bad != nil {
			o.closed(bad)
		} else {
			by = transportOf(conn)
			s.carry(o, conn, by)
		}
	case <-o.quit:
	}
	s.gate.leave(ticket)
	s.mu.Lock()
	delete(s.active, o)
	s.mu.Unlock()
	s.tell(o.end(), by)
}

func (s *Sender) tell(events []Event, by Transport) {
	for _, e := range events {
		e.Transport = by
		s.options.Events(e)
	}
}

// carry pumps a transfer over its connection until it is over. It writes; another goroutine reads.
func (s *Sender) carry(o *Outgoing, conn net.Conn, by Transport) {
	o.mu.Lock()
	o.lane, o.by = s.laneFor(conn), by
	o.machine.Start(s.clock())
	o.mu.Unlock()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		o.listen(conn)
	}()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		o.prepare()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := s.clock()
		t := o.turn(now)
		s.tell(t.events, by)
		switch {
		case t.over:
			<-packed  // Afterwards nobody reads the pages
			o.drain() // but what is under way to a lane.
			conn.Close()
			<-heard
			return
		case t.bytes != nil:
			s.charge(len(t.bytes))
			o.said(s.push(o, conn, t.bytes))
		case t.shipment != nil:
			o.deliver(conn, t.shipment)
		default:
			timer.Reset(t.deadline - now)
			select {
			case <-o.woken:
			case <-timer.C:
			}
		}
	}
}

// said notes what was written of the machine's output; a transfer that is over needs no more.
func (o *Outgoing) said(n int, err error) {
	o.mu.Lock()
	o.machine.Written(n)
	o.machine.Crossed(n, false)
	if o.machine.Over() && err != nil {
		o.machine.Written(len(o.machine.Output()))
	}
	o.mu.Unlock()
	if err != nil {
		o.closed(fault(Reset, "write: %v", err))
	}
}

// closed tells the machine that the connection ended.
func (o *Outgoing) closed(why *Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.machine.Closed(why, o.sender.clock())
	o.over()
}

// deliver writes one shipment, or one frame of it.
func (o *Outgoing) deliver(conn net.Conn, what *shipment) {
	s := o.sender
	frame, bad := o.machine.frame(what) // It was packed before: see prepare and Send.
	if bad != nil {
		o.giveUp(bad)
		return
	}
	o.mu.Lock()
	ok := o.machine.sent(what, frame, s.clock())
	o.mu.Unlock()
	signal(o.roomy)
	if !ok {
		return
	}
	began := s.clock()
	n, err := s.write(o, conn, frame.whole)
	o.mu.Lock()
	o.span.spent(began, s.clock())
	o.machine.Crossed(n, !frame.inLane)
	if err == nil && frame.inLane {
		o.machine.carried(frame.bytes)
	}
	o.mu.Unlock()
	if err != nil {
		o.closed(fault(Reset, "write: %v", err))
	}
	s.backlog.Add(-what.size())
	s.recycle(frame.whole)
}

// write writes all of p at the pace of the sender's rate, as long as the machine lives.
func (s *Sender) write(o *Outgoing, conn net.Conn, p []byte) (written int, err error) {
	for written < len(p) {
		piece, wait := s.pace(len(p) - written)
		if wait > 0 {
			if !sleep(wait, o.quit) {
				return written, errOver
			}
			continue
		}
		n, err := s.push(o, conn, p[written:written+piece])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// push writes all of p. A write that blocks is looked after: it ends when the machine does, and
// when the peer took not one byte for a timeout.
func (s *Sender) push(o *Outgoing, conn net.Conn, p []byte) (written int, err error) {
	for idle := 0; written < len(p); {
		_ = conn.SetWriteDeadline(time.Now().Add(s.options.Timeout / beatsATimeout))
		n, err := conn.Write(p[written:])
		written += n
		if err == nil {
			return written, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
		if idle++; n > 0 {
			idle = 0
		}
		if !o.alive(idle >= beatsATimeout) {
			return written, errOver
		}
	}
	return written, nil
}

var errOver = errors.New("the transfer is over")

// alive lets the machine's time pass and says whether it goes on. Stuck ends it.
func (o *Outgoing) alive(stuck bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.sender.clock()
	o.machine.Tick(now)
	if stuck {
		why := fault(Timeout, "the receiver took no byte for %v", o.sender.options.Timeout)
		o.machine.Closed(why, now)
	}
	return !o.machine.Over()
}

func sleep(d time.Duration, quit <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-quit:
		return false
	}
}

// listen feeds the machine what the receiver says, until either is over.
func (o *Outgoing) listen(conn net.Conn) {
	for {
		o.mu.Lock()
		space := o.machine.Space()
		o.mu.Unlock()
		n, err := conn.Read(space)
		o.mu.Lock()
		now := o.sender.clock()
		if n > 0 {
			o.machine.Filled(n, now)
			o.freed()
		}
		if err != nil {
			o.machine.Closed(lost(err), now)
		}
		over := o.machine.Over()
		if over {
			o.over()
		}
		o.mu.Unlock()
		if over {
			_ = conn.SetWriteDeadline(past)
		}
		o.wake()
		if over {
			return
		}
	}
}

func lost(err error) *Error {
	if errors.Is(err, io.EOF) {
		return fault(Reset, "the receiver closed the connection")
	}
	return fault(Reset, "read: %v", err)
}
