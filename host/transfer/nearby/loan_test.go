//go:build unix

package nearby

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

// bank lends one memory, and is its own borrower.
type bank struct {
	refuses error
	file    *os.File
	back    chan returned
	peers   chan int
	asked   chan string
}

// returned is what a lender is given back.
type returned struct {
	quiet func() bool
	done  func()
}

func newBank() *bank {
	return &bank{back: make(chan returned, 4), peers: make(chan int, 4),
		asked: make(chan string, 4)}
}

func (b *bank) Lend(ask []byte, process int) (Offer, error) {
	b.asked <- string(ask)
	b.peers <- process
	return Offer{Words: []byte("words"), File: b.file, Loan: b}, b.refuses
}

func (b *bank) Ask() []byte { return []byte("please") }

func (b *bank) Borrow(words []byte, file *os.File, process int) (Loan, error) {
	b.peers <- process
	if string(words) != "words" || (file != nil) != (b.file != nil) {
		return nil, errors.New("other words, or files, than were said")
	}
	return b, b.refuses
}

func (b *bank) Lane() (number, bytes int)             { return 7, 4096 }
func (b *bank) Network() string                       { return "lane" }
func (b *bank) Return(quiet func() bool, done func()) { b.back <- returned{quiet, done} }

// meetLoan is both ends of a connection with a loan.
func meetLoan(t *testing.T, lender, borrower *bank) (near, far *sharedConn, err error) {
	t.Helper()
	if !HasShared {
		t.Skip("no shared memory")
	}
	dir := folder(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	if lender != nil {
		l.Lend(lender)
	}
	got, done := make(chan net.Conn, 1), make(chan struct{})
	go func() {
		defer close(done)
		l.Serve(func(conn net.Conn) { got <- conn })
	}()
	conn, err := DialLoan(context.Background(), dir, l.Name(), borrower)
	if err == nil {
		near, far = conn.(*sharedConn), (<-got).(*sharedConn)
	}
	l.Close()
	<-done
	for err != nil && len(got) > 0 { // Its handler closes what comes to nothing.
		(<-got).Close()
	}
	return near, far, err
}

// TestLoanIsHeldUntilQuiet: a lender is told that nothing is under way any more by the marks of the
// end that began it, whichever end closes first, and nothing begins after the loan was revoked.
func TestLoanIsHeldUntilQuiet(t *testing.T) {
	there, here := newBank(), newBank()
	there.file, _ = os.Open(os.DevNull)
	here.file = there.file
	near, far, err := meetLoan(t, there, here)
	if err != nil {
		t.Fatal(err)
	}
	if ask, me := <-there.asked, os.Getpid(); ask != "please" || <-there.peers != me ||
		<-here.peers != me {
		t.Errorf("asked %q, of and by other processes", ask)
	}
	if near.Network() != "lane" || near.Loan() == nil || far.Loan() == nil {
		t.Error("the connection does not know its loan")
	}
	for range 2 {
		if !near.Begin() {
			t.Fatal("nothing may begin")
		}
	}
	near.End()
	far.Close() // The lender's end goes first: with one thing under way.
	lent := <-there.back
	if lent.quiet() {
		t.Fatal("quiet with something under way")
	}
	if near.Begin() {
		t.Error("something began after the loan was revoked")
	}
	if lent.quiet() {
		t.Fatal("quiet with something under way")
	}
	near.Close()
	if given := <-here.back; given.quiet != nil || given.done != nil {
		t.Error("the borrower is asked to wait")
	}
	near.End() // After Close: the words are still there.
	if !lent.quiet() {
		t.Error("not quiet after the end")
	}
	lent.done()
	if near.Begin() {
		t.Error("something began on a closed connection")
	}
}

// TestLoanRefused: the reason arrives, and neither end keeps anything.
func TestLoanRefused(t *testing.T) {
	lends, refuses := newBank(), newBank()
	refuses.refuses = errors.New("not this time")
	for want, c := range map[string][2]*bank{
		"not this time":        {refuses, newBank()},
		"nothing is lent here": {nil, newBank()},
		"take a loan":          {lends, refuses},
	} {
		_, _, err := meetLoan(t, c[0], c[1])
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if given := <-lends.back; !given.quiet() {
		t.Error("what was not taken is not quiet")
	} else {
		given.done()
	}
}
