// Package transfer moves the keys and values of a prompt from a prefill instance into pages that a
// decode instance reserved for it. PROTOCOL.md is the contract, this package its implementation.
//
// What always holds:
//
//  1. Nothing is written to a page before an opening frame proved the right to write it, and
//     afterwards only the reserved slots are written, each once, in ascending order a layer.
//  2. A transfer is delivered when every slot of every layer and model arrived and both ends hold
//     the same digest; until then the receiver's engine has heard only that it was opened.
//  3. Pages of a released lease are the engine's again only when no writer can reach them: Release
//     says so at once, or a Fenced event says so later.
//  4. The protocol (Ledger, Inbound, Dispatch) has no clock, goroutine or socket: bytes and the
//     time go in, bytes and events come out. Only conn.go, dial.go and mux.go know connections.
package transfer

import (
	"time"

	"github.com/kvrelay/engine/host/kvcache"
)

// ProtocolVersion is the version of the frames and of the metadata string. Both ends must agree.
const ProtocolVersion = 1

// Limits of the protocol. A peer that goes beyond one is refused; none is a setting.
const (
	// MaxMetadata bounds the metadata string, in bytes.
	MaxMetadata = 64 << 10
	// MaxFrame bounds the payload of a data frame, in bytes of keys and values.
	MaxFrame = 1 << 20
	// MaxModels bounds the models of one engine, MaxLayers the layers of one model.
	MaxModels = 16
	MaxLayers = 1024
	// MaxPositions bounds the window of one reservation, in tokens.
	MaxPositions = 1 << 24
)

// Pages is the memory behind the pages of one model. A range lies in one page of one layer; its
// bytes are Count keys [Count][KVHeads][HeadDim], then Count values of the same shape,
// little-endian in the pool's type (the canonical layout of gpu.KVRange).
//
// ReadPage is called inside Outgoing.Send, on the caller's goroutine; but see LatePages. WritePage
// is called from the goroutine of a connection, for slots that no one else reads or writes
// meanwhile; calls for one lease never overlap, calls for different leases may.
type Pages interface {
	ReadPage(layer int, r kvcache.SlotRange, dst []byte) error
	WritePage(layer int, r kvcache.SlotRange, src []byte) error
}

// LatePages are Pages of which slots that are complete may be read by any goroutine, at any time
// before the transfer has ended, while others of the same page are written. Then ReadPage is called
// from the connection's goroutine when there is room to send: the bytes go out while they are in
// the processor's cache, and the forward pass does not wait for their copy.
type LatePages interface {
	Pages
	ReadsLate() bool
}

// StagedPages are LatePages in the memory of an accelerator. Stage is called inside Outgoing.Send,
// on the caller's goroutine, with what ReadPage will be asked for later of a layer: the copy to
// where ReadPage finds it may begin at once, beside the rest of the forward pass, and must not be
// waited for. An error ends the transfer. Stage may do nothing.
type StagedPages interface {
	LatePages
	Stage(layer int, ranges []kvcache.SlotRange) error
}

// RangedPages are Pages in the memory of an accelerator, where a call costs more than its bytes:
// WriteRanges is WritePage of all ranges of a data frame, whose bytes follow one another in src.
type RangedPages interface {
	Pages
	WriteRanges(layer int, ranges []kvcache.SlotRange, src []byte) error
}

// Model is one of the engine's models as the transfer sees it. SlotBytes is what one token's key
// and value take in one layer, in bytes.
type Model struct {
	Compat    Compat
	Pages     Pages
	SlotBytes int
}

// Direction tells the two ends of a transfer apart where one engine has both.
type Direction uint8

// The directions; their names are the metrics' labels.
const (
	Sending Direction = iota
	Receiving
)

func (d Direction) String() string {
	if d == Sending {
		return "send"
	}
	return "receive"
}

// EventKind says what happened to a transfer or a lease.
type EventKind uint8

// What an engine hears. Of a sending transfer: Opened at most once, then Done or Failed exactly
// once. Of a lease: Opened for each accepted writer, then Delivered or Failed; Expired when nobody
// wrote or renewed; Fenced once after a Release that answered false.
const (
	// Opened: the receiver accepted the opening frame. Sending: compute may begin, at Event.From.
	Opened EventKind = iota
	// Delivered: all KV of the lease lies in its pages and the digest agreed. Receiving only.
	Delivered
	// Done: the receiver acknowledged all of it. Sending only; the pages need no pin any more.
	Done
	// Failed: Event.Err says why. Sending: the pages need no pin any more. Receiving: the lease
	// stays, free for another writer, until it is released or expires.
	Failed
	// Expired: the lease is gone and its pages are the engine's. Receiving only.
	Expired
	// Fenced: the writer of a released lease is gone and its pages are the engine's. Receiving
	// only.
	Fenced
	// Overtaken is no event of the transfer's own: an engine tells its watch that it computes a
	// prompt itself whose writer is still live. Fenced follows. Receiving only.
	Overtaken
)

func (k EventKind) String() string {
	return [...]string{"opened", "delivered", "done", "failed", "expired", "fenced",
		"overtaken"}[k]
}

// Event is what the transfer tells the engine. The callback that takes it runs on the transfer's
// goroutines and on those that call Release and the like: it must not block, nor call back.
type Event struct {
	Kind      EventKind
	Direction Direction
	ID        string // as given to Grant or Open
	// From is, with Opened, the first position still to be sent: the window's begin, or the end of
	// the chunks that an earlier writer of the lease had sealed.
	From int
	// Bytes of keys and values that crossed the connection, and of all frames with their headers.
	Bytes, Wire int64
	// Transport is what carried it; empty where no connection was made.
	Transport Transport
	// Elapsed is, with Done and Delivered, the time from the first byte of KV to the
	// acknowledgement.
	Elapsed time.Duration
	// Hidden is, with Done, the time that the connection spent on frames before Seal was called,
	// while the rest of the prompt was still computed; Exposed is the time from there to the
	// acknowledgement, which nothing hid. A simulated transfer has neither.
	Hidden, Exposed time.Duration
	Err             *Error // with Failed
}

// Window is the positions [Begin, End) of a prompt that a transfer carries.
type Window struct{ Begin, End int }

// Len is the number of positions.
func (w Window) Len() int { return w.End - w.Begin }
