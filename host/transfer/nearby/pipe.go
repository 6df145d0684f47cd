package nearby

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBytes is the room of each direction of a Pipe.
const pipeBytes = 64 << 10

// Pipe is both ends of a connection within this process, by the same rings as shared memory.
func Pipe() (net.Conn, net.Conn) {
	ab := newRing(make([]byte, ringHead), make([]byte, pipeBytes))
	ba := newRing(make([]byte, ringHead), make([]byte, pipeBytes))
	abReader, abWriter := newChannelBells()
	baReader, baWriter := newChannelBells()
	nothing := func() error { return nil }
	a := &sharedConn{local: pipeAddr{}, remote: pipeAddr{}, unmap: nothing}
	b := &sharedConn{local: pipeAddr{}, remote: pipeAddr{}, unmap: nothing}
	a.in, a.out = half{ring: ba, bell: baReader}, half{ring: ab, bell: abWriter}
	b.in, b.out = half{ring: ab, bell: abReader}, half{ring: ba, bell: baWriter}
	return a, b
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return string(Shared) }
func (pipeAddr) String() string  { return "pipe" }

// channelBell rings over a channel that holds one ring.
type channelBell struct {
	mine, theirs chan struct{}
	gone         chan struct{} // closed by the other end's Close
	closed       chan struct{} // closed by ours

	mu    sync.Mutex // guards what follows
	once  sync.Once
	timer *time.Timer
	late  chan struct{} // closed when the deadline has passed
}

func newChannelBells() (reader, writer *channelBell) {
	toReader, toWriter := make(chan struct{}, 1), make(chan struct{}, 1)
	readerGone, writerGone := make(chan struct{}), make(chan struct{})
	reader = &channelBell{mine: toReader, theirs: toWriter, gone: writerGone, closed: readerGone,
		late: make(chan struct{})}
	writer = &channelBell{mine: toWriter, theirs: toReader, gone: readerGone, closed: writerGone,
		late: make(chan struct{})}
	return reader, writer
}

// Ring implements bell.
func (b *channelBell) Ring() {
	select {
	case b.theirs <- struct{}{}:
	default:
	}
}

// Wait implements bell.
func (b *channelBell) Wait() error {
	b.mu.Lock()
	late := b.late
	b.mu.Unlock()
	select {
	case <-b.mine:
		return nil
	case <-late:
		return os.ErrDeadlineExceeded
	case <-b.closed:
		return net.ErrClosed
	case <-b.gone:
		return io.EOF
	}
}

// SetReadDeadline implements bell. One that is not later than now wakes who waits.
func (b *channelBell) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer == nil || !b.timer.Stop() {
		select {
		case <-b.late: // Who waited was told.
			b.late = make(chan struct{})
		default:
			if b.timer != nil { // It is firing, and will close what nobody looks at.
				b.late = make(chan struct{})
			}
		}
	}
	b.timer = nil
	if t.IsZero() {
		return nil
	}
	late := b.late
	b.timer = time.AfterFunc(time.Until(t), func() { close(late) })
	return nil
}

// Close implements bell.
func (b *channelBell) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.SetReadDeadline(time.Time{})
}
