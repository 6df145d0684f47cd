package lanes

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/transfer/nearby"
)

// memory is a device whose lanes are slices; a handle names one of them.
type memory struct {
	identity string
	linked   bool
	lanes    map[int][]byte
	last     int
	handles  map[string][]byte // of all devices
	fails    string            // this call
}

var errPlanted = errors.New("planted")

func (m *memory) Identity() string    { return m.identity }
func (m *memory) Reaches(string) bool { return m.linked }

func (m *memory) add(call string, memory []byte) (int, error) {
	if m.fails == call {
		return 0, errPlanted
	}
	m.last++
	m.lanes[m.last] = memory
	return m.last, nil
}

func (m *memory) AttachLane(memory []byte, _ bool) (int, error) { return m.add("attach", memory) }

func (m *memory) LendLane(bytes int) (int, []byte, error) {
	lane := make([]byte, bytes)
	n, err := m.add("lend", lane)
	handle := m.identity + string(rune('0'+n))
	m.handles[handle] = lane
	return n, []byte(handle), err
}

func (m *memory) BorrowLane(handle []byte, _ int, _ string) (int, error) {
	return m.add("borrow", m.handles[string(handle)])
}

func (m *memory) DetachLane(n int) error { delete(m.lanes, n); return nil }

func (m *memory) PokeLane(n, at int, src []byte) error { copy(m.lanes[n][at:], src); return nil }
func (m *memory) PeekLane(n, at int, dst []byte) error { copy(dst, m.lanes[n][at:]); return nil }

// two are the devices of a receiver and of a sender.
func two(sameDevice bool) (far, near *memory) {
	handles := map[string][]byte{}
	far = &memory{identity: "a", linked: true, lanes: map[int][]byte{}, handles: handles}
	near = &memory{identity: "a", linked: true, lanes: map[int][]byte{}, handles: handles}
	if !sameDevice {
		near.identity = "b"
	}
	return far, near
}

const small = 8 << 10

func skipWithout(t *testing.T) {
	if !nearby.HasShared {
		t.Skip("no lanes on this system")
	}
}

// lend asks for a lane and takes it.
func lend(t *testing.T, l *Lender, b *Borrower, k Kind, process int) (far, near nearby.Loan) {
	t.Helper()
	by := b.Of(k)
	offer, err := l.Lend(by.Ask(), process)
	if err != nil {
		t.Fatal(err)
	}
	near, err = by.Borrow(offer.Words, offer.File, os.Getpid())
	if offer.File != nil {
		offer.File.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return offer.Loan, near
}

// TestLoans: both ends reach one memory, and each kind has its name in metrics.
func TestLoans(t *testing.T) {
	skipWithout(t)
	for _, c := range []struct {
		same bool
		kind Kind
		name string
	}{{true, OnHost, Pinned}, {true, OnDevice, IPC}, {false, OnHost, Pinned},
		{false, OnDevice, Peer}} {
		far, near := two(c.same)
		l, b := NewLender(far, small, 1), NewBorrower(near)
		there, here := lend(t, l, b, c.kind, os.Getpid())
		n, size := here.Lane()
		m, _ := there.Lane()
		if size != small || here.Network() != c.name || there.Network() != c.name {
			t.Errorf("%+v: %d bytes, %s, %s", c, size, here.Network(), there.Network())
		}
		near.lanes[n][small-1] = 7
		if far.lanes[m][small-1] != 7 {
			t.Errorf("%+v: not one memory", c)
		}
		if _, err := l.Lend(b.Of(c.kind).Ask(), os.Getpid()); err == nil {
			t.Errorf("%+v: lent twice", c)
		}
		here.Return(nil, nil)
		quiet := false
		there.Return(func() bool { return quiet }, func() {})
		if _, err := l.Lend(b.Of(c.kind).Ask(), os.Getpid()); err == nil {
			t.Errorf("%+v: lent while the sender may write", c)
		}
		quiet = true
		lend(t, l, b, c.kind, os.Getpid())
		if b.Open() != 1 {
			t.Errorf("%+v: mapped %d times", c, b.Open())
		}
	}
}

// TestLaneOfADeadSender: what a killed process may still have under way keeps its lane from others
// until the process is gone.
func TestLaneOfADeadSender(t *testing.T) {
	skipWithout(t)
	sender := exec.Command("cat")
	in, err := sender.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := sender.Start(); err != nil {
		t.Skip(err)
	}
	far, near := two(true)
	l, b := NewLender(far, small, 1), NewBorrower(near)
	there, here := lend(t, l, b, OnDevice, sender.Process.Pid)
	here.Return(nil, nil)
	done := 0
	there.Return(func() bool { return false }, func() { done++ })
	if _, err := l.Lend(ask(OnDevice, "a"), os.Getpid()); err == nil {
		t.Fatal("lent while its last sender lives")
	}
	if err := sender.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sender.Wait()
	if _, err := l.Lend(ask(OnDevice, "a"), os.Getpid()); err != nil || done != 1 {
		t.Errorf("after the sender's end: %v; done %d times", err, done)
	}
}

// TestLanesOfDeadReceivers are not kept mapped.
func TestLanesOfDeadReceivers(t *testing.T) {
	skipWithout(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	far, near := two(true)
	b := NewBorrower(near)
	offer, err := NewLender(far, small, 1).Lend(ask(OnDevice, "a"), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	loan, err := b.Of(OnDevice).Borrow(offer.Words, nil, gone.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if b.Open() != 1 {
		t.Fatal("closed while it is used")
	}
	loan.Return(nil, nil)
	if b.Open() != 0 || len(near.lanes) > 0 {
		t.Errorf("%d lanes are mapped", b.Open())
	}
}

// TestRefusals: what cannot be lent or borrowed says why, and leaves nothing.
func TestRefusals(t *testing.T) {
	skipWithout(t)
	for name, c := range map[string]struct {
		change func(far, near *memory)
		kind   Kind
		want   string
	}{
		"no memory": {func(far, _ *memory) { far.fails = "lend" }, OnDevice, "planted"},
		"not registered by the receiver": {func(far, _ *memory) { far.fails = "attach" }, OnHost,
			"planted"},
		"not registered by the sender": {func(_, near *memory) { near.fails = "attach" }, OnHost,
			"planted"},
		"not opened": {func(_, near *memory) { near.fails = "borrow" }, OnDevice, "planted"},
		"no link, says the receiver": {func(far, near *memory) {
			near.identity, far.linked = "b", false
		}, OnDevice, "no link"},
		"no link, says the sender": {func(far, near *memory) {
			near.identity, near.linked = "b", false
		}, OnDevice, "cannot be reached"},
		"no identity": {func(far, near *memory) { far.identity, near.identity = "", "" }, OnDevice,
			"does not tell"},
		"another memory": {func(far, near *memory) {
			far.identity, near.identity, near.handles = "a", "a", map[string][]byte{
				"a1": make([]byte, small)}
		}, OnDevice, "not the receiver's memory"},
	} {
		far, near := two(true)
		c.change(far, near)
		l, b := NewLender(far, small, 1), NewBorrower(near)
		by := b.Of(c.kind)
		offer, err := l.Lend(by.Ask(), os.Getpid())
		if err == nil {
			_, err = by.Borrow(offer.Words, offer.File, os.Getpid())
			if offer.File != nil {
				offer.File.Close()
			}
			offer.Loan.Return(func() bool { return true }, func() {})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, busy, held := l.Counts(); busy+held+b.Open()+len(near.lanes) > 0 {
			t.Errorf("%s: %d busy, %d held, %d mapped", name, busy, held, b.Open())
		}
		if err := l.Close(); err != nil || len(far.lanes) > 0 {
			t.Errorf("%s: after the end: %v, %d lanes", name, err, len(far.lanes))
		}
	}
	far, _ := two(true)
	l := NewLender(far, small, 1)
	for _, words := range []string{"", "x", "da", "h" + strings.Repeat("a", 200)} {
		if _, err := l.Lend([]byte(words), 0); err == nil {
			t.Errorf("%q was lent to a process that nobody sees", words)
		}
	}
}

// FuzzGrant: words of a receiver are refused or read as what they were made of.
func FuzzGrant(f *testing.F) {
	good := grant{kind: OnDevice, bytes: small, identity: "a", handle: []byte("h")}
	f.Add(good.append(nil))
	f.Add((&grant{kind: OnHost, bytes: leastBytes}).append(nil))
	f.Fuzz(func(t *testing.T, words []byte) {
		g, err := readGrant(words)
		if err != nil {
			return
		}
		if g.bytes < leastBytes || g.bytes > mostBytes || len(g.handle) > mostName {
			t.Errorf("%+v was taken", g)
		}
		if again := g.append(nil); !bytes.Equal(again, words) {
			t.Errorf("%x reads as %x", words, again)
		}
	})
}
