package lanes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/kvrelay/engine/host/transfer/nearby"
)

// Lender is the receiver's side: it implements nearby.Lender and is safe for concurrent use.
type Lender struct {
	device Device
	bytes  int
	most   int
	counts atomic.Pointer[counts]

	mu    sync.Mutex // guards what follows
	lanes []*lent
	ended bool
}

// lent is one lane. Whoever has it is told by process.
type lent struct {
	kind   Kind
	id     id
	number int
	handle []byte
	shared *shared // of the host

	busy    bool
	process int
	// quiet says whether what a sender that is gone from its connection began is over, done that
	// nobody needs to know any more; nil while the connection lives.
	quiet func() bool
	done  func()
}

// NewLender lends lanes of so many bytes, at most so many of a kind; 0 means the defaults.
func NewLender(device Device, bytes, most int) *Lender {
	if bytes == 0 {
		bytes = DefaultBytes
	}
	if most == 0 {
		most = DefaultMost
	}
	l := &Lender{device: device, bytes: bytes, most: most}
	l.counts.Store(&counts{})
	return l
}

// Counts is how many lanes there are, how many a connection has, and how many wait for the end of
// what a sender began. It waits for no device: while a lane is being made it says what was before.
func (l *Lender) Counts() (made, busy, held int) {
	if l.mu.TryLock() {
		l.counts.Store(l.count())
		l.mu.Unlock()
	}
	c := l.counts.Load()
	return c.made, c.busy, c.held
}

type counts struct{ made, busy, held int }

// count is under the lock.
func (l *Lender) count() *counts {
	c := &counts{made: len(l.lanes)}
	for _, lane := range l.lanes {
		lane.settle()
		switch {
		case lane.quiet != nil:
			c.held++
		case lane.busy:
			c.busy++
		}
	}
	return c
}

// Lend implements nearby.Lender.
func (l *Lender) Lend(words []byte, process int) (nearby.Offer, error) {
	kind, from, err := readAsk(words)
	if err != nil {
		return nearby.Offer{}, err
	}
	if process <= 0 {
		return nearby.Offer{}, errors.New("the sender's process cannot be seen from here")
	}
	if kind == OnDevice && from != l.device.Identity() && !l.device.Reaches(from) {
		return nearby.Offer{}, fmt.Errorf("no link between the sender's device %q and %q here",
			from, l.device.Identity())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nearby.Offer{}, errors.New("the receiver ends")
	}
	lane, err := l.find(kind)
	if err != nil {
		return nearby.Offer{}, err
	}
	g := grant{kind: lane.kind, id: lane.id, bytes: l.bytes, identity: l.device.Identity(),
		handle: lane.handle}
	_, _ = rand.Read(g.word[:]) // It never fails.
	if err := l.device.PokeLane(lane.number, 0, g.word[:]); err != nil {
		return nearby.Offer{}, fmt.Errorf("mark a lane: %w", err)
	}
	var file *os.File
	network := Peer
	if from == g.identity {
		network = IPC
	}
	if lane.shared != nil {
		network = Pinned
		if file, err = lane.shared.duplicate(); err != nil {
			return nearby.Offer{}, err
		}
	}
	lane.busy, lane.process = true, process
	return nearby.Offer{Words: g.append(nil), File: file, Loan: &loan{
		number: lane.number, bytes: l.bytes, network: network,
		back: func(quiet func() bool, done func()) { l.back(lane, quiet, done) },
	}}, nil
}

// find is a lane that nobody has. The lock is held.
func (l *Lender) find(kind Kind) (*lent, error) {
	count := 0
	for _, lane := range l.lanes {
		lane.settle()
		if lane.kind != kind {
			continue
		}
		if !lane.busy {
			return lane, nil
		}
		count++
	}
	if count >= l.most {
		return nil, fmt.Errorf("all %d lanes are lent", count)
	}
	lane := &lent{kind: kind}
	_, _ = rand.Read(lane.id[:])
	var err error
	if kind == OnDevice {
		if l.device.Identity() == "" {
			return nil, errors.New("the driver does not tell which device this is")
		}
		lane.number, lane.handle, err = l.device.LendLane(l.bytes)
	} else if lane.shared, err = newShared(l.bytes); err == nil {
		if lane.number, err = l.device.AttachLane(lane.shared.memory, true); err != nil {
			lane.shared.close()
		}
	}
	if err != nil {
		return nil, err
	}
	l.lanes = append(l.lanes, lane)
	return lane, nil
}

// settle gives a lane back to all once nothing of its last sender's can be under way any more.
func (l *lent) settle() {
	if l.quiet == nil || !l.quiet() && !gone(l.process) {
		return
	}
	l.done()
	l.busy, l.quiet, l.done = false, nil, nil
}

// back takes a lane from a connection that ended.
func (l *Lender) back(lane *lent, quiet func() bool, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane.quiet, lane.done = quiet, done
	lane.settle()
}

// Close ends all lanes. The connections that have some are to be closed before.
func (l *Lender) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	var all []error
	for _, lane := range l.lanes {
		lane.settle()
		err := l.device.DetachLane(lane.number)
		all = append(all, err)
		if lane.shared != nil && err == nil { // Else the device may still reach it.
			lane.shared.close()
		}
	}
	l.lanes = nil
	return errors.Join(all...)
}
