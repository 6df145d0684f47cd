package transfer

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/transfer/nearby"
)

// dialer is net.Dialer.DialContext, or another way to a connection.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// dial connects to the address of the metadata, if the rule on peers allows it, by the first of
// the sender's transports that works. A name is resolved once, and only addresses that were judged
// are dialled.
func (s *Sender) dial(o *Outgoing) (net.Conn, *Error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout)
	defer cancel()
	go func() {
		select {
		case <-o.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	target, rule := o.meta.target, s.rule()
	found := []netip.Addr{target.addr}
	if target.name != "" {
		var err error
		if found, err = net.DefaultResolver.LookupNetIP(ctx, "ip", target.name); err != nil {
			return nil, fault(Reset, "resolve %s: %v", target.name, err)
		}
	}
	allowed, bad := rule.judge(target, found)
	if bad != nil {
		return nil, bad
	}
	var last error
	for _, addr := range allowed {
		conn, err := s.connect(ctx, "tcp", addr.String())
		if err == nil {
			conn, err = s.nearer(ctx, conn, addr.String())
		}
		if err == nil {
			return conn, nil
		}
		last = err
	}
	if ctx.Err() != nil {
		return nil, fault(Timeout, "no connection to %s for %v", o.meta.Address, s.options.Timeout)
	}
	return nil, fault(Reset, "dial %s: %v", o.meta.Address, last)
}

// nearer is the connection by the first of the sender's transports that leads to the receiver at
// the other end of conn. Whoever is on another host, and who does not know the question, stays on
// TCP.
func (s *Sender) nearer(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	list := s.options.Transports
	if list[0] == TCP || !sameHost(conn) {
		if !slices.Contains(list, TCP) {
			conn.Close()
			return nil, fault(Reset, "only %v are allowed, and it is on another host", list)
		}
		return conn, nil
	}
	found, err := askWay(ctx, conn)
	if err != nil { // It may have closed the connection over the question.
		conn.Close()
		if conn, err = s.connect(ctx, "tcp", address); err != nil {
			return nil, err
		}
	}
	last := error(fault(Reset, "no way but TCP, and only %v are allowed", list))
	for _, t := range s.ways {
		if t == TCP {
			return conn, nil
		}
		if found.name == "" || !slices.Contains(found.by, t) {
			continue
		}
		near, err := s.approach(ctx, found.name, t)
		if err == nil {
			conn.Close()
			return near, nil
		}
		last = err
	}
	conn.Close()
	return nil, last
}

// waysOf are the ways of a sender's transports, in order: with a lane first where there may be one.
func waysOf(o SenderOptions) (all []Transport) {
	can := o.Lanes != nil && allLanes(o.Models)
	for _, t := range o.Transports {
		if t == Shared && can {
			all = append(all, Pinned)
		}
		if t != IPC || can {
			all = append(all, t)
		}
	}
	return all
}

// approach connects to a receiver on this host.
func (s *Sender) approach(ctx context.Context, name string, t Transport) (net.Conn, error) {
	kind, lane := laneKinds[t]
	if !lane {
		return nearby.Dial(ctx, s.options.Folder, name, nearby.Kind(t))
	}
	who := shun{name, t}
	if !s.mayTry(who) {
		return nil, fault(Reset, "%s failed with this receiver before", t)
	}
	near, err := nearby.DialLoan(ctx, s.options.Folder, name, s.options.Lanes.Of(kind))
	if first := s.tried(who, err == nil); first && err != nil && s.options.Note != nil {
		s.options.Note(name, t, err)
	}
	return near, err
}

// sameHost says whether both ends of a connection have one address: the system takes the address
// that is dialled for its own end where it is one of its own.
func sameHost(conn net.Conn) bool {
	here, ok1 := conn.LocalAddr().(*net.TCPAddr)
	there, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok1 && ok2 && (there.IP.IsLoopback() || here.IP.Equal(there.IP))
}

// askWay asks the receiver at the other end for a nearer way.
func askWay(ctx context.Context, conn net.Conn) (way, error) {
	until, _ := ctx.Deadline()
	_ = conn.SetDeadline(until)
	defer conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	defer stop()
	if _, err := conn.Write(appendFrame(nil, kindNearby, pass{}, nil)); err != nil {
		return way{}, err
	}
	var d decoder
	for {
		n, err := conn.Read(d.space())
		if err != nil {
			return way{}, lost(err)
		}
		d.filled(n)
		f, ok, bad := d.next(pass{})
		switch {
		case bad != nil:
			return way{}, bad
		case ok && f.kind == kindWay:
			found, bad := readWay(f.payload)
			if bad != nil {
				return way{}, bad
			}
			return found, nil
		case ok:
			return way{}, fault(Malformed, "a frame (%v) in answer to nearby", f.kind)
		}
	}
}

// serveNearby serves who came by a nearer way, until the listener is closed.
func (r *Receiver) serveNearby() {
	r.options.Nearby.Serve(func(conn net.Conn) { r.Serve(conn, nil) })
}

// transportOf is how a connection carries bytes.
func transportOf(conn net.Conn) Transport {
	if named, ok := conn.(interface{ Network() string }); ok {
		return Transport(named.Network())
	}
	return Transport(conn.LocalAddr().Network())
}
