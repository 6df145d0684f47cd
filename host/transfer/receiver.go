package transfer

import (
	"cmp"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/transfer/lanes"
	"github.com/kvrelay/engine/host/transfer/nearby"
)

// ReceiverOptions is what a Receiver needs. Zero durations and counts mean the defaults.
type ReceiverOptions struct {
	// Models are the engine's, main model first. Compat of all of them must match the sender's.
	Models []Model
	// Address is host:port where senders reach this instance (transfer.advertise).
	Address string
	// Random gives the receiver's key and the tokens of leases: crypto/rand.Reader in earnest.
	Random io.Reader
	// Timeout: nothing heard for so long ends a transfer. Default 4s.
	Timeout time.Duration
	// Lease: a reservation that nobody writes or renews for so long expires. Default 60s.
	Lease time.Duration
	// MaxInflight bounds the writers at once; more wait. Default 32.
	MaxInflight int
	// MaxLeases bounds the reservations at once. Default 4096.
	MaxLeases int
	// Nearby takes the connections of senders on this host that ask for a nearer way; nil: there is
	// none. The Receiver closes it.
	Nearby *nearby.Listener
	// Lanes lends memory to those senders, where a device holds the pages of all models; nil: it
	// lends none. It is the caller's to close, after the Receiver.
	Lanes *lanes.Lender
	// Events hears what happened. It must not block, nor call the Receiver.
	Events func(Event)
}

// Reservation is what a lease gives the right to write: the positions of Window, and per model the
// slots they go to, as run-length segments (Compress makes them). The k-th slot is position
// Begin+k's.
type Reservation struct {
	Window   Window
	Segments [][]Segment
	// FreePages and Running tell the sender how busy the receiver is: pages that it could hand out,
	// and sequences that hold some.
	FreePages, Running int
}

// LeaseCounts is the number of leases in each state, for the metrics.
type LeaseCounts struct{ Granted, Writing, Sealed, Quarantined int }

// Defaults of both ends' options.
const (
	DefaultTimeout     = 4 * time.Second
	DefaultLease       = 60 * time.Second
	DefaultMaxInflight = 32
	DefaultMaxLeases   = 4096
	DefaultMaxBuffered = 1 << 30
)

func (o *ReceiverOptions) setDefaults() {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.MaxInflight = cmp.Or(o.MaxInflight, DefaultMaxInflight)
	o.MaxLeases = cmp.Or(o.MaxLeases, DefaultMaxLeases)
}

// Receiver is the decode side: it grants leases on reserved pages and lets whoever proves one write
// them. Its methods may be called from any goroutine and never wait for a peer.
type Receiver struct {
	options ReceiverOptions
	clock   func() time.Duration

	mu     sync.Mutex // guards what follows; never held while the engine or a peer is called
	ledger *Ledger
	links  map[uint64]*inlink // by epoch: the connections that write
	all    map[*inlink]bool   // every connection
	ended  bool
	work   sync.WaitGroup // connections and the clock's goroutine
	stop   chan struct{}
}

// NewReceiver draws the receiver's key and starts the clock of its leases.
func NewReceiver(o ReceiverOptions) (*Receiver, error) {
	o.setDefaults()
	ledger, err := NewLedger(o)
	if err != nil {
		return nil, err
	}
	if o.Events == nil {
		return nil, errors.New("transfer: no one hears the receiver's events")
	}
	r := &Receiver{
		options: o, clock: newClock(), ledger: ledger, links: map[uint64]*inlink{},
		all: map[*inlink]bool{}, stop: make(chan struct{}),
	}
	r.work.Go(r.expire)
	if o.Nearby != nil {
		if o.Lanes != nil {
			o.Nearby.Lend(o.Lanes)
		}
		r.work.Go(r.serveNearby)
	}
	return r, nil
}

// Grant makes a lease for id and returns the metadata string that proves it. The id is the engine's
// own: no two leases ever share one, so that a late event cannot be taken for another's. The error
// is an *Error of reason Busy when id has a lease already or MaxLeases are held.
func (r *Receiver) Grant(id string, res Reservation) (metadata string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Grant(id, res, r.clock())
}

// Renew starts the lease's time anew. It answers false when id has no lease.
func (r *Receiver) Renew(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Renew(id, r.clock())
}

// Release ends the lease of id in any state. True: nobody can write its pages, they are the
// caller's at once (also when there is no such lease). False: a writer is live; it is told, and a
// Fenced event follows when it is gone; until then the pages are in quarantine.
func (r *Receiver) Release(id string) (fenced bool) {
	r.mu.Lock()
	epoch, fenced := r.ledger.Release(id)
	link := r.links[epoch]
	r.mu.Unlock()
	if !fenced && link != nil {
		link.withdraw()
	}
	return fenced
}

// Leases counts the leases by state.
func (r *Receiver) Leases() LeaseCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Counts()
}

// Close ends all connections and waits for their goroutines: transfers under way fail, leases
// without a writer end without an event. After it no event is told.
func (r *Receiver) Close() error {
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.stop)
		if r.options.Nearby != nil {
			_ = r.options.Nearby.Close() // What is left of it is swept up by the next.
		}
	}
	for link := range r.all {
		link.conn.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
	return nil
}

// tell gives the ledger's new events to the engine, outside the lock.
func (r *Receiver) tell(events []Event, by Transport) {
	for _, e := range events {
		e.Transport = by
		r.options.Events(e)
	}
}

// tick lets leases expire.
func (r *Receiver) tick() {
	r.mu.Lock()
	r.ledger.Tick(r.clock())
	events := r.ledger.Events()
	r.mu.Unlock()
	r.tell(events, "")
}

// add takes a connection in, unless the receiver was closed or has its fill of them.
func (r *Receiver) add(link *inlink) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || len(r.all) >= connsAWriter*r.options.MaxInflight {
		return false
	}
	r.all[link] = true
	r.work.Add(1)
	return true
}

func (r *Receiver) drop(link *inlink) {
	r.mu.Lock()
	delete(r.all, link)
	r.mu.Unlock()
	r.work.Done()
}

// connsAWriter times MaxInflight is the most connections: those that write, and those that wait.
const connsAWriter = 8

// counter is the desk of one connection: the ledger behind the receiver's lock.
type counter struct {
	*Receiver
	link *inlink
}

func (c counter) open(o *opening, now time.Duration) (*grant, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, bad := c.ledger.open(o, now)
	if bad == nil {
		c.links[g.epoch] = c.link
	}
	return g, bad
}

func (c counter) current(epoch uint64, model, from, end int) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.current(epoch, model, from, end)
}

func (c counter) seat(epoch uint64) bool {
	c.mu.Lock()
	seated := c.ledger.seat(epoch)
	events := c.ledger.Events()
	c.mu.Unlock()
	c.tell(events, c.link.by)
	return seated
}

func (c counter) settle(epoch uint64, o outcome, now time.Duration) *Error {
	c.mu.Lock()
	bad := c.ledger.settle(epoch, o, now)
	events := c.ledger.Events()
	c.mu.Unlock()
	c.tell(events, c.link.by)
	return bad
}

func (c counter) leave(epoch uint64, now time.Duration) {
	c.mu.Lock()
	c.ledger.leave(epoch, now)
	if c.links[epoch] == c.link {
		delete(c.links, epoch)
	}
	events := c.ledger.Events()
	c.mu.Unlock()
	c.tell(events, c.link.by)
}
