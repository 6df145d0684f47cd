package nearby

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

// Loan is memory that both ends of a connection over shared memory reach beside its rings, lent by
// the listener's end for as long as the connection lives.
type Loan interface {
	// Lane is the number by which this process's device knows the memory, and its size in bytes.
	Lane() (number, bytes int)
	// Network is how a connection with this loan is called in metrics.
	Network() string
	// Return ends the loan. The lender is told how to find out whether what the peer began in the
	// memory is over: before Quiet says so, or the peer's process is gone, the memory gets no other
	// use; then Done is called. The borrower is given nil for both.
	Return(quiet func() bool, done func())
}

// Offer is a lender's answer to who asks: words for the peer, a file for it or nil, which Listener
// closes, and the loan.
type Offer struct {
	Words []byte
	File  *os.File
	Loan  Loan
}

// Lender lends to the process with that number, which asks in words of its own.
type Lender interface {
	Lend(ask []byte, process int) (Offer, error)
}

// Borrower asks, and takes what was offered; the file is closed afterwards. Process is the number
// of the lender's.
type Borrower interface {
	Ask() []byte
	Borrow(words []byte, file *os.File, process int) (Loan, error)
}

// maxWords bounds what is said about a loan.
const maxWords = 512

// Where the words of a loan lie in the memory of a connection, each in a cache line of its own.
// The dialler writes the first two, the listener the third.
const (
	atBegun   = 2 * ringHead
	atEnded   = atBegun + 64
	atRevoked = atEnded + 64
)

// marks count what the dialler has under way in a loan. They are read by the listener even when
// the dialler has died.
type marks struct{ begun, ended, revoked *atomic.Uint64 }

// quiet says that nothing is under way, and, once the loan was revoked, that nothing will be: who
// begins looks at revoked behind its mark.
func (m marks) quiet() bool {
	ended := m.ended.Load()
	return m.begun.Load() == ended
}

// lending is the part of a connection that has a loan.
type lending struct {
	marks   marks
	loan    Loan
	dialler bool

	mu      sync.Mutex // guards what follows
	pending int        // begun and not ended here
	closed  bool
}

// Loan is the memory lent with the connection; nil: none.
func (c *sharedConn) Loan() Loan { return c.lent.loan }

// Begin says that something of this end, the dialler's, is about to be under way in the loan; false
// that it must not be any more. End says that it is over, also after Close: what does not end keeps
// the lender from using the memory again.
func (c *sharedConn) Begin() bool {
	l := &c.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.loan == nil {
		return false
	}
	l.marks.begun.Add(1)
	if l.marks.revoked.Load() != 0 {
		l.marks.ended.Add(1)
		return false
	}
	l.pending++
	return true
}

// End is the counterpart of Begin.
func (c *sharedConn) End() {
	l := &c.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.ended.Add(1)
	if l.pending--; l.pending == 0 && l.closed {
		_ = c.unmap() // The connection has answered already.
	}
}

// settle ends the loan of a connection that is closed, and unmaps its memory as soon as nobody
// needs it.
func (c *sharedConn) settle() error {
	l := &c.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	switch {
	case l.loan == nil:
		return c.unmap()
	case !l.dialler:
		l.marks.revoked.Store(1)
		l.loan.Return(l.marks.quiet, func() { _ = c.unmap() })
		return nil
	}
	l.loan.Return(nil, nil)
	if l.pending == 0 {
		return c.unmap()
	}
	return nil
}

// hear is the listener's part of a greeting that asks for a loan.
func hear(conn *net.UnixConn, made net.Conn, lender Lender, peer int) ([]byte, *os.File, error) {
	ask, err := readWords(conn)
	if err != nil {
		return nil, nil, err
	}
	shared, ok := made.(*sharedConn)
	if lender == nil || !ok {
		return nil, nil, fmt.Errorf("nothing is lent here")
	}
	offer, err := lender.Lend(ask, peer)
	if err != nil {
		return nil, nil, err
	}
	shared.lent.loan = offer.Loan
	return offer.Words, offer.File, nil
}

// writeWords sends words behind their length.
func writeWords(conn io.Writer, words []byte) error {
	words = words[:min(len(words), maxWords)]
	length := binary.LittleEndian.AppendUint16(nil, uint16(len(words)))
	_, err := conn.Write(append(length, words...))
	return err
}

func readWords(conn io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, fmt.Errorf("read what is said about a loan: %w", err)
	}
	n := int(binary.LittleEndian.Uint16(length[:]))
	if n > maxWords {
		return nil, fmt.Errorf("%d bytes are said about a loan, %d may be", n, maxWords)
	}
	words := make([]byte, n)
	if _, err := io.ReadFull(conn, words); err != nil {
		return nil, fmt.Errorf("read what is said about a loan: %w", err)
	}
	return words, nil
}
