package transfer

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memoryListener hands out the far ends of pipes.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error   { close(l.closed); return nil }
func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestMuxTellsKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiring(t, nil)
		defer w.close()
		l := newMemoryListener()
		m := NewMux(l, w.receiver)
		defer m.Close()

		web := l.dial()
		go fmt.Fprint(web, "GET /live HTTP/1.1\r\n\r\n")
		conn, err := m.HTTP().Accept()
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || line != "GET /live HTTP/1.1\r\n" {
			t.Fatalf("%q %v", line, err)
		}
		web.Close()
		conn.Close()

		odd := l.dial() // Neither a letter nor a frame: closed at once.
		_, _ = odd.Write([]byte{0x16})
		if _, err := odd.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("TLS hello: %v", err)
		}

		frames := l.dial()
		go frames.Write([]byte(magic))
		synctest.Wait()
		if len(w.receiver.all) != 1 {
			t.Error("the receiver did not get the connection")
		}
		frames.Close()
	})
}

func TestMuxDropsTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemoryListener()
		m := NewMux(l, nil)
		silent := l.dial()
		began := time.Now()
		_, err := silent.Read(make([]byte, 1))
		if err != io.EOF || time.Since(began) != DefaultTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		frame := l.dial() // No receiver here: a frame's connection is closed.
		_, _ = frame.Write([]byte(magic[:1]))
		if _, err := frame.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("frame without a receiver: %v", err)
		}
		waiting := l.dial()
		synctest.Wait()
		began = time.Now()
		m.Close()
		if _, err := waiting.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != 0 {
			t.Errorf("Close waits for a silent connection: %v", err)
		}
		if _, err := m.HTTP().Accept(); err != net.ErrClosed {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

func TestMuxSniffsABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemoryListener()
		m := NewMux(l, nil)
		defer m.Close()
		var conns []net.Conn
		for range sniffing {
			conns = append(conns, l.dial())
		}
		synctest.Wait()
		select {
		case l.conns <- nil:
			t.Error("one more was accepted")
		default:
		}
		for _, conn := range conns {
			conn.Close()
		}
	})
}

// overEach runs a test over each transport of this system, by real sockets.
func overEach(t *testing.T, s shape, f func(t *testing.T, r *rig)) {
	for _, by := range transports() {
		t.Run(string(by), func(t *testing.T) {
			f(t, newRigWith(t, s, func(_ *ReceiverOptions, so *SenderOptions) {
				so.Transports = []Transport{by, TCP}
				pagesOf(so.Models[0]).late = by != Unix
			}))
		})
	}
}

// A rig's transfer arrives whole, by the transport that was preferred.
func TestLoopback(t *testing.T) { overEach(t, smallShape, testLoopback) }

func testLoopback(t *testing.T, r *rig) {
	n, _ := r.move(t, "a", 100)
	if want := int64(100 * 3 * 8); n != want {
		t.Errorf("%d bytes sent, want %d", n, want)
	}
	if by := r.sender.options.Transports[0]; r.by != by {
		t.Errorf("carried by %s, want %s", r.by, by)
	}
	var slots []int
	for i := range 100 {
		slots = append(slots, i)
	}
	r.sameKV(t, 0, firstPages(25), slots)
}

// Many transfers over real sockets at once, some cancelled, some released in their middle: each
// ends in one event, and nothing is left. Made for the race detector.
func TestHammer(t *testing.T) {
	overEach(t, shape{layers: 3, pages: 320, pageSize: 4, slotBytes: 8}, testHammer)
}

func testHammer(t *testing.T, r *rig) {
	const transfers = 60
	ends := make(chan string, transfers)
	fenced := make(chan string, transfers)
	opened := make([]chan struct{}, transfers) // closed when the transfer was opened or failed
	for i := range opened {
		opened[i] = make(chan struct{})
	}
	go func() {
		told := make([]bool, transfers)
		for e := range r.heard {
			i, _ := strconv.Atoi(e.ID)
			if e.Direction == Sending && !told[i] {
				told[i] = true
				close(opened[i])
			}
			switch {
			case e.Direction == Sending && (e.Kind == Done || e.Kind == Failed):
				ends <- e.ID
			case e.Kind == Fenced:
				fenced <- e.ID
			}
		}
	}()
	var work sync.WaitGroup
	for i := range transfers {
		work.Go(func() { hammerOne(t, r, i, opened[i]) })
	}
	work.Wait()
	seen := map[string]bool{}
	for range transfers {
		id := <-ends
		if seen[id] {
			t.Errorf("%s ended twice", id)
		}
		seen[id] = true
	}
	for i := range transfers {
		for !r.receiver.Release(fmt.Sprint(i)) {
			<-fenced
		}
	}
	if c := r.receiver.Leases(); c != (LeaseCounts{}) {
		t.Errorf("left: %+v", c)
	}
	if n := r.sender.Backlog(); n != 0 {
		t.Errorf("%d bytes of backlog left", n)
	}
}

func hammerOne(t *testing.T, r *rig, i int, opened chan struct{}) {
	chance := rand.New(rand.NewPCG(uint64(i), 3))
	id, w := fmt.Sprint(i), Window{End: 20}
	text, err := r.receiver.Grant(id, Reservation{Window: w, Segments: [][]Segment{{{20 * i, 20}}}})
	if err != nil {
		t.Error(err)
		return
	}
	m, err := r.sender.Parse(text, w)
	if err != nil {
		t.Error(err)
		return
	}
	out, err := r.sender.Open(id, m)
	if err != nil {
		t.Error(err)
		return
	}
	way := chance.IntN(5)
	if way == 4 {
		out.Cancel()
	}
	<-opened
	for layer := range 3 {
		if way == 1 && chance.IntN(3) == 0 {
			out.Cancel()
		}
		if way == 2 && chance.IntN(3) == 0 {
			r.receiver.Release(id)
		}
		_ = out.Send(0, layer, 20, firstPages(5)) // Fails as planned above.
	}
	out.Seal()
	if way == 3 {
		out.Cancel()
	}
}
