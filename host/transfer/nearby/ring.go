package nearby

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Where a ring's words lie in its head, each in a cache line of its own.
const (
	atHead        = 0   // u64: bytes ever written
	atTail        = 64  // u64: bytes ever read
	atReaderWaits = 128 // u32: 1 = ring when there is more
	atWriterWaits = 192 // u32: 1 = ring when there is room
	ringHead      = 256
)

// piece is how much a writer copies before it says so, so that the reader begins meanwhile.
const piece = 64 << 10

// errDamaged is a peer that wrote a position that cannot be.
var errDamaged = errors.New("the shared memory holds a position that cannot be")

// ring is bytes on their way from one process to another. Each side trusts its own position, which
// it keeps to itself, and checks the other's.
type ring struct {
	head, tail               *atomic.Uint64
	readerWaits, writerWaits *atomic.Uint32
	data                     []byte // a power of two
}

// newMarks are the words of a loan in memory that both sides map.
func newMarks(head []byte) marks {
	_ = head[atRevoked+7]
	word := func(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&head[at])) }
	return marks{word(atBegun), word(atEnded), word(atRevoked)}
}

// newRing is the ring in memory that both sides map: a head of ringHead bytes, 64-byte aligned, and
// the data.
func newRing(head, data []byte) *ring {
	_ = head[ringHead-1]
	word := func(at int) unsafe.Pointer { return unsafe.Pointer(&head[at]) }
	return &ring{
		head: (*atomic.Uint64)(word(atHead)), tail: (*atomic.Uint64)(word(atTail)),
		readerWaits: (*atomic.Uint32)(word(atReaderWaits)),
		writerWaits: (*atomic.Uint32)(word(atWriterWaits)), data: data,
	}
}

// bell wakes the other side of one ring, and sleeps until it is woken. Ring never blocks: a bell
// that was not heard yet need not ring again. Wait returns nil for a ring, else why there is none.
type bell interface {
	Ring()
	Wait() error
	SetReadDeadline(time.Time) error
	Close() error
}

// half is this side's end of a ring: the reader's or the writer's.
type half struct {
	*ring
	bell   bell
	mu     sync.Mutex // one call at a time; guards pos
	pos    uint64
	closed atomic.Bool
}

// read is net.Conn's Read.
func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := false
	for len(p) > 0 {
		if h.closed.Load() {
			return 0, net.ErrClosed
		}
		there := h.head.Load() - h.pos
		if there > uint64(len(h.data)) {
			return 0, errDamaged
		}
		if there > 0 {
			return h.fetch(p[:min(len(p), int(there))], int(there)), nil
		}
		if ended {
			return 0, io.EOF
		}
		h.readerWaits.Store(1)
		if h.head.Load() != h.pos {
			h.readerWaits.Store(0)
			continue
		}
		err := h.bell.Wait()
		ended = err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil && !ended {
			return 0, err
		}
	}
	return 0, nil
}

// fetch copies len(p) of there bytes out, and wakes a writer that has room again.
func (h *half) fetch(p []byte, there int) int {
	at := int(h.pos) & (len(h.data) - 1)
	n := copy(p, h.data[at:])
	copy(p[n:], h.data)
	h.pos += uint64(len(p))
	h.tail.Store(h.pos)
	if there-len(p) <= len(h.data)*3/4 && h.writerWaits.Load() == 1 &&
		h.writerWaits.Swap(0) == 1 {
		h.bell.Ring()
	}
	return len(p)
}

// write is net.Conn's Write.
func (h *half) write(p []byte) (written int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for written < len(p) {
		if h.closed.Load() {
			return written, net.ErrClosed
		}
		used := h.pos - h.tail.Load()
		if used > uint64(len(h.data)) {
			return written, errDamaged
		}
		if room := len(h.data) - int(used); room > 0 {
			written += h.put(p[written:][:min(room, len(p)-written, piece)])
			continue
		}
		h.writerWaits.Store(1)
		if h.pos-h.tail.Load() != uint64(len(h.data)) {
			h.writerWaits.Store(0)
			continue
		}
		if err := h.bell.Wait(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrClosedPipe
			}
			return written, err
		}
	}
	return written, nil
}

// put copies p in, for which there is room, and wakes a reader that waits.
func (h *half) put(p []byte) int {
	at := int(h.pos) & (len(h.data) - 1)
	n := copy(h.data[at:], p)
	copy(h.data, p[n:])
	h.pos += uint64(len(p))
	h.head.Store(h.pos)
	if h.readerWaits.Load() == 1 && h.readerWaits.Swap(0) == 1 {
		h.bell.Ring()
	}
	return len(p)
}

// sharedConn is a net.Conn over two rings.
type sharedConn struct {
	in, out half
	lent    lending
	local   net.Addr
	remote  net.Addr
	unmap   func() error
	once    sync.Once
}

func (c *sharedConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *sharedConn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *sharedConn) LocalAddr() net.Addr         { return c.local }
func (c *sharedConn) RemoteAddr() net.Addr        { return c.remote }

// Network is how the connection is called in metrics.
func (c *sharedConn) Network() string {
	if c.lent.loan != nil {
		return c.lent.loan.Network()
	}
	return string(Shared)
}

// SetReadDeadline implements net.Conn. What is there already is read whatever the deadline.
func (c *sharedConn) SetReadDeadline(t time.Time) error { return c.in.bell.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn. For what there is room the deadline does not count.
func (c *sharedConn) SetWriteDeadline(t time.Time) error { return c.out.bell.SetReadDeadline(t) }

func (c *sharedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close wakes who waits at either end, and unmaps the memory when nobody here is in it any more.
func (c *sharedConn) Close() (err error) {
	c.once.Do(func() {
		c.in.closed.Store(true)
		c.out.closed.Store(true)
		err = errors.Join(c.in.bell.Close(), c.out.bell.Close())
		c.in.mu.Lock()
		defer c.in.mu.Unlock()
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		err = errors.Join(err, c.settle())
	})
	return err
}
