package generation

import (
	"context"
	"time"
)

// Handoff is what an instance offers to those who split a generation over two: the micro-serving
// calls. Requests of one generation carry one ID.
type Handoff interface {
	// PrepareReceive reserves pages for prompt[:end] and answers what a sender needs. A negative
	// end counts from the prompt's end.
	PrepareReceive(ctx context.Context, r Request, end int) (Reservation, error)
	// RemoteSend computes prompt[:send.End] and answers when the receiver has all keys and values
	// of [send.Begin, send.End).
	RemoteSend(ctx context.Context, r Request, send Send) (Sent, error)
	// StartGenerate goes on from a reservation whose prompt[:begin] is there, and computes the rest
	// of the prompt itself. Without a reservation begin must be 0.
	StartGenerate(ctx context.Context, r Request, begin int) (Stream, error)
	Reservations
}

// Reservations are the two ways to end a reservation that nobody starts.
type Reservations interface {
	// Commit keeps what was delivered in the prefix cache, evictable, and ends the reservation: a
	// prompt's keys and values have moved here. It waits for a live writer, and answers how many
	// of the prompt's tokens are here. What was not delivered is CodeNotDelivered, and the
	// reservation stays.
	Commit(ctx context.Context, id string) (tokens int, err error)
	// Release drops the reservation of an id in any state. Unknown ids are no error.
	Release(ctx context.Context, id string) error
}

// Reservation is the answer of PrepareReceive.
type Reservation struct {
	// Metadata is opaque to all but the receiver and the sender.
	Metadata string
	// Matched prompt tokens are in the receiver's prefix cache and need not be sent.
	Matched int
	// End is the end of the window after a negative one was counted from the prompt's end.
	End int
}

// Send is the window of a remote send and where it goes. A negative End counts from the prompt's
// end.
type Send struct {
	Begin, End int
	Metadata   string
}

// Sent is what a remote send delivered.
type Sent struct {
	// Tokens is the window's length, Cached what the sender's prefix cache held of the prompt.
	Tokens, Cached int
	// Chunks is the count of prefill chunks computed, Queue the time until the first began, Prefill
	// the time from there until the last one was computed.
	Chunks         int
	Queue, Prefill time.Duration
	// Bytes of keys and values crossed the connection, within Elapsed from the first to the
	// acknowledgement.
	Bytes   int64
	Elapsed time.Duration
}
