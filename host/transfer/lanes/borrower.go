package lanes

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/kvrelay/engine/host/transfer/nearby"
)

// Borrower is the sender's side. A lane is mapped when it is lent for the first time and stays so
// for the next connections, until its receiver is gone. It is safe for concurrent use.
type Borrower struct {
	device Device

	mu    sync.Mutex // guards what follows
	known []*borrowed
}

// borrowed is a lane that is mapped here.
type borrowed struct {
	grant   grant
	number  int
	network string
	process int     // the receiver's
	shared  *shared // of the host
	users   int
}

// NewBorrower borrows for a device.
func NewBorrower(device Device) *Borrower { return &Borrower{device: device} }

// Of is what asks for a lane of a kind.
func (b *Borrower) Of(kind Kind) nearby.Borrower { return asker{b, kind} }

type asker struct {
	*Borrower
	kind Kind
}

// Ask implements nearby.Borrower.
func (a asker) Ask() []byte { return ask(a.kind, a.device.Identity()) }

// Borrow implements nearby.Borrower.
func (a asker) Borrow(words []byte, file *os.File, process int) (nearby.Loan, error) {
	g, err := readGrant(words)
	if err != nil {
		return nil, err
	}
	if g.kind != a.kind {
		return nil, fmt.Errorf("%w: another kind than asked for", errGrant)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	lane, err := a.open(g, file, process)
	if err != nil {
		return nil, err
	}
	var there word
	err = a.device.PeekLane(lane.number, 0, there[:])
	if err == nil && there != g.word {
		err = errors.New("the lane is not the receiver's memory")
	}
	if err != nil {
		a.forget(lane)
		return nil, err
	}
	lane.users++
	return &loan{number: lane.number, bytes: g.bytes, network: lane.network,
		back: func(func() bool, func()) { a.back(lane) }}, nil
}

// open is the lane, mapped. The lock is held.
func (b *Borrower) open(g grant, file *os.File, process int) (*borrowed, error) {
	for _, lane := range b.known {
		if lane.grant.id == g.id && lane.grant.bytes == g.bytes && lane.grant.kind == g.kind {
			return lane, nil
		}
	}
	lane := &borrowed{grant: g, process: process}
	var err error
	if g.kind == OnDevice {
		lane.network, err = b.reach(g.identity)
		if err == nil {
			lane.number, err = b.device.BorrowLane(g.handle, g.bytes, g.identity)
		}
	} else {
		lane.network = Pinned
		if lane.shared, err = openShared(file, g.bytes); err == nil {
			if lane.number, err = b.device.AttachLane(lane.shared.memory, false); err != nil {
				lane.shared.close()
			}
		}
	}
	if err != nil {
		return nil, err
	}
	b.known = append(b.known, lane)
	return lane, nil
}

// reach is what a lane on a device is called from here.
func (b *Borrower) reach(identity string) (string, error) {
	own := b.device.Identity()
	switch {
	case own == "" || identity == "":
		return "", errors.New("the driver does not tell which device this is")
	case own == identity:
		return IPC, nil
	case !b.device.Reaches(identity):
		return "", fmt.Errorf("the receiver's device %s cannot be reached from %s", identity, own)
	}
	return Peer, nil
}

func (b *Borrower) back(lane *borrowed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lane.users--
	b.sweep()
}

// sweep closes lanes that nobody uses: those of receivers that are gone, and the oldest beyond
// mostIdle. The lock is held.
func (b *Borrower) sweep() {
	idle := 0
	for i := len(b.known) - 1; i >= 0; i-- {
		lane := b.known[i]
		if lane.users > 0 {
			continue
		}
		if idle++; idle > mostIdle || gone(lane.process) {
			b.forget(lane)
		}
	}
}

// forget closes a lane that nobody uses. The lock is held.
func (b *Borrower) forget(lane *borrowed) {
	if lane.users > 0 {
		return
	}
	for i, other := range b.known {
		if other == lane {
			b.known = append(b.known[:i], b.known[i+1:]...)
			break
		}
	}
	// Memory that the device may still reach, as it may where it is lost, stays mapped.
	if err := b.device.DetachLane(lane.number); err == nil && lane.shared != nil {
		lane.shared.close()
	}
}

// Open is how many lanes are mapped.
func (b *Borrower) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.known)
}

// Close closes all lanes that no connection uses.
func (b *Borrower) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.known) - 1; i >= 0; i-- {
		b.forget(b.known[i])
	}
}
