package engine

import (
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer"
)

// Receiver grants leases on reserved pages: what the engine needs of a transfer.Receiver, whose
// words say what each method does.
type Receiver interface {
	Grant(id string, r transfer.Reservation) (metadata string, err error)
	Release(id string) (fenced bool)
}

// Sender carries KV to receivers: what the engine needs of a transfer.Sender.
type Sender interface {
	Parse(text string, w transfer.Window) (*transfer.Metadata, error)
	Open(id string, m *transfer.Metadata) (Outgoing, error)
	Backlog() int64
}

// Outgoing is one transfer of a Sender, as transfer.Outgoing.
type Outgoing interface {
	Send(model, layer, end int, pages []kvcache.PageID) error
	SealChunk(end int)
	Seal()
	Cancel()
}

// Connect gives the engine the two ends of the transfer, whose events must go to Heard. Either may
// be nil: the calls that need it are then refused. It is called before Run.
func (e *Engine) Connect(r *transfer.Receiver, s *transfer.Sender) {
	if r != nil {
		e.receiver = r
	}
	if s != nil {
		e.sender = sender{s}
	}
}

// sender gives a transfer.Sender the engine's words.
type sender struct{ *transfer.Sender }

func (s sender) Open(id string, m *transfer.Metadata) (Outgoing, error) {
	o, err := s.Sender.Open(id, m)
	if err != nil {
		return nil, err
	}
	return o, nil
}
