package transfer

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// sniffing bounds the connections whose kind is not known yet.
const sniffing = 256

// Mux tells micro-serving HTTP and KV frames apart on one port by their first byte: an HTTP method
// starts with an ASCII letter, a frame does not. Whoever says nothing for a timeout is dropped.
type Mux struct {
	listener net.Listener
	receiver *Receiver
	timeout  time.Duration
	http     chan net.Conn
	places   chan struct{} // one token for each connection that is being sniffed
	stop     chan struct{}
	work     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	unknown map[net.Conn]bool
	closing bool
}

// NewMux takes connections from l until Close. Frame connections go to r; with r nil they are
// closed.
func NewMux(l net.Listener, r *Receiver) *Mux {
	m := &Mux{
		listener: l, receiver: r, timeout: DefaultTimeout, http: make(chan net.Conn),
		places: make(chan struct{}, sniffing), stop: make(chan struct{}),
		unknown: map[net.Conn]bool{},
	}
	if r != nil {
		m.timeout = r.options.Timeout
	}
	m.work.Go(m.accept)
	return m
}

// HTTP is the listener for the HTTP server. Closing it closes the Mux.
func (m *Mux) HTTP() net.Listener { return httpListener{m} }

// Close stops listening, ends the connections whose kind is not known yet, and waits for their
// goroutines. Connections of the Receiver end with it, those of the HTTP server with that.
func (m *Mux) Close() error {
	m.mu.Lock()
	first := !m.closing
	m.closing = true
	for conn := range m.unknown {
		_ = conn.SetReadDeadline(past)
	}
	m.mu.Unlock()
	if !first {
		return nil
	}
	close(m.stop)
	err := m.listener.Close()
	m.work.Wait()
	return err
}

// accept hands each connection to a goroutine that finds out its kind. When all places are taken
// it waits: the operating system's own queue is the bound. An error of the listener that is no end
// (too many open files) is waited out.
func (m *Mux) accept() {
	for {
		select {
		case m.places <- struct{}{}:
		case <-m.stop:
			return
		}
		conn, err := m.listener.Accept()
		if err == nil {
			m.work.Go(func() { m.sniff(conn) })
			continue
		}
		<-m.places
		if errors.Is(err, net.ErrClosed) || !sleep(10*time.Millisecond, m.stop) {
			return
		}
	}
}

func (m *Mux) sniff(conn net.Conn) {
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(m.timeout))
	defer func() { <-m.places }()
	m.watch(conn, true)
	_, err := io.ReadFull(conn, first)
	m.watch(conn, false)
	_ = conn.SetReadDeadline(time.Time{})
	switch {
	case err == nil && first[0] == magic[0] && m.receiver != nil:
		go m.receiver.Serve(conn, first)
	case err == nil && isLetter(first[0]):
		select {
		case m.http <- &headed{Conn: conn, head: first}:
		case <-m.stop:
			conn.Close()
		}
	default:
		conn.Close()
	}
}

// watch keeps the connections that Close has to wake.
func (m *Mux) watch(conn net.Conn, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unknown[conn] = on
	if !on {
		delete(m.unknown, conn)
	} else if m.closing {
		_ = conn.SetReadDeadline(past)
	}
}

func isLetter(b byte) bool { return 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z' }

// headed is a connection of which the first bytes were read already.
type headed struct {
	net.Conn
	head []byte
}

func (c *headed) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite is what an HTTP server closes by, so that its last answer is read.
func (c *headed) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// httpListener is the HTTP server's side of a Mux.
type httpListener struct{ m *Mux }

func (l httpListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.m.http:
		return conn, nil
	case <-l.m.stop:
		return nil, net.ErrClosed
	}
}

func (l httpListener) Close() error   { return l.m.Close() }
func (l httpListener) Addr() net.Addr { return l.m.listener.Addr() }
