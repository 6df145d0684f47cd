package transfer

import (
	"errors"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
)

// SenderOptions is what a Sender needs. Zero durations and counts mean the defaults.
type SenderOptions struct {
	// Models are the engine's, main model first, as in ReceiverOptions.
	Models []Model
	// Peers are the networks (CIDR) and host names that may be dialled. Nil means loopback only.
	Peers []string
	// Timeout: nothing heard for so long ends a transfer. Default 4s.
	Timeout time.Duration
	// MaxRate bounds the bytes a second over all links; 0 = unlimited.
	MaxRate int64
	// MaxInflight bounds the transfers at once; more wait their turn inside Open. Default 32.
	MaxInflight int
	// MaxBuffered bounds the bytes of KV that wait for slow links. A transfer starts when all of
	// its KV fits beside that of the others in flight, or when it is alone. Default 1 GiB.
	MaxBuffered int64
	// Events hears what happened. It must not block, nor call the Sender.
	Events func(Event)
}

// Sender is the prefill side: it carries KV to the receivers that metadata strings name.
type Sender struct{}

// NewSender checks the options; its error names the peer that is neither a network nor a name.
func NewSender(o SenderOptions) (*Sender, error) { return nil, errors.New("not built") }

// Parse reads a metadata string and checks all that a sender can know: encoding, version, sizes, one
// list of segments a model, each summing to the window, no slot twice, an address that the rule on
// peers does not refuse. The error is an *Error of reason InvalidMetadata. Nothing is dialled.
func (s *Sender) Parse(text string, w Window) (*Metadata, error) {
	return nil, errors.New("not built")
}

// Open starts a transfer under id: dial, opening frame, answer. It returns at once; an Opened or
// Failed event follows. The error (Reason Busy) says that too many transfers wait already.
func (s *Sender) Open(id string, m *Metadata) (*Outgoing, error) {
	return nil, errors.New("not built")
}

// SetRate changes MaxRate, SetPeers the Peers, for transfers to come and those under way.
func (s *Sender) SetRate(bytesPerSecond int64) {}

// SetPeers replaces the list of peers, or keeps the old one and says what is wrong with the new.
func (s *Sender) SetPeers(peers []string) error { return nil }

// Inflight is the number of transfers under way, waiting ones included.
func (s *Sender) Inflight() int { return 0 }

// Backlog is the bytes of KV read from pages and not yet written to a connection.
func (s *Sender) Backlog() int64 { return 0 }

// Close fails all transfers and waits for their goroutines.
func (s *Sender) Close() error { return nil }

// Outgoing is one transfer on the sending side. Send, Seal and SealChunk are called from one
// goroutine, after the Opened event; Cancel from any. None waits for the peer.
type Outgoing struct{}

// Send ships what a layer of a model has not sent yet of the window's positions below end. pages is
// the sequence's page table: position p stands in slot p%PageSize of pages[p/PageSize]. It is
// called after the layer's KV append (batch.Batch.LayerDone): the keys and values are copied out of
// the pages before it returns. The pages stay pinned all the same until Done or Failed.
//
// The copies wait in memory, at most the KV of this transfer. After a failure Send does nothing and
// returns it; the Failed event comes once.
func (o *Outgoing) Send(model, layer, end int, pages []kvcache.PageID) error {
	return errors.New("not built")
}

// SealChunk says that all layers of all models have sent everything below end: another writer may
// resume there if this one is lost. Optional.
func (o *Outgoing) SealChunk(end int) {}

// Seal says that everything was sent. A Done event follows when the receiver has it all.
func (o *Outgoing) Seal() {}

// Cancel gives the transfer up and tells the receiver. A Failed event of Reason Cancelled follows,
// unless Done or Failed was on its way.
func (o *Outgoing) Cancel() {}
