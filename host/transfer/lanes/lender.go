package lanes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/kvrelay/engine/host/transfer/nearby"
)

// Lender is the receiver's side: it implements nearby.Lender and is safe for concurrent use.
type Lender struct {
	device Device
	bytes  int
	most   int

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
	return &Lender{device: device, bytes: bytes, most: most}
}

// Counts is how many lanes there are, how many a connection has, and how many wait for the end of
// what a sender began.
func (l *Lender) Counts() (made, busy, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.lanes {
		switch {
		case lane.quiet != nil:
			held++
		case lane.busy:
			busy++
		}
	}
	return len(l.lanes), busy, held
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
		if lane.number, err = l.device.AttachLane(lane.shared.memory); err != nil {
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

// Sweep looks after lanes that wait for the end of what a sender began; Lend does so too.
func (l *Lender) Sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.lanes {
		lane.settle()
	}
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
