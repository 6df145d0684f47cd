package transfer

import (
	"errors"
	"io"
	"time"
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
	// Events hears what happened. It must not block, nor call the Receiver.
	Events func(Event)
}

// Reservation is what a lease gives the right to write: the positions of Window, and per model the
// slots they go to, as run-length segments (Compress makes them). The k-th slot is position Begin+k's.
type Reservation struct {
	Window   Window
	Segments [][]Segment
}

// Segment is Count consecutive positions in consecutive slots from Slot on; a slot is
// page*PageSize + offset. Slot -1 stands for positions that will have slid out of a window: they
// are counted and not sent.
type Segment struct{ Slot, Count int }

// LeaseCounts is the number of leases in each state, for the metrics.
type LeaseCounts struct{ Granted, Writing, Sealed, Quarantined int }

// Receiver is the decode side: it grants leases on reserved pages and lets whoever proves one write
// them. Its methods may be called from any goroutine and never wait for a peer.
type Receiver struct{}

// NewReceiver draws the receiver's key.
func NewReceiver(o ReceiverOptions) (*Receiver, error) { return nil, errors.New("not built") }

// Grant makes a lease for id and returns the metadata string that proves it. The error is of
// Reason Busy when id has a lease already or MaxLeases are held.
func (r *Receiver) Grant(id string, res Reservation) (metadata string, err error) {
	return "", errors.New("not built")
}

// Renew starts the lease's time anew. It answers false when id has no lease.
func (r *Receiver) Renew(id string) bool { return false }

// Release ends the lease of id in any state. True: nobody can write its pages, they are the
// caller's at once (also when there is no such lease). False: a writer is live; it is told, and a
// Fenced event follows when it is gone; until then the pages are in quarantine.
func (r *Receiver) Release(id string) (fenced bool) { return true }

// Leases counts the leases by state.
func (r *Receiver) Leases() LeaseCounts { return LeaseCounts{} }

// Close ends all connections and waits for their goroutines. Leases end without events.
func (r *Receiver) Close() error { return nil }
