package transfer

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer/lanes"
)

// SenderOptions is what a Sender needs. Zero durations and counts mean the defaults.
type SenderOptions struct {
	// Models are the engine's, main model first, as in ReceiverOptions.
	Models []Model
	// Peers are the networks (CIDR) and host names that may be dialled. Nil means loopback only.
	Peers []string
	// Transports may be used, in order of preference; nil means TCP alone. Every transfer begins on
	// TCP; a receiver on this host is then asked for a nearer way.
	Transports []Transport
	// Lanes borrows memory of receivers on this host, where a device holds the pages of all models;
	// nil: keys and values go by the connection's bytes.
	Lanes *lanes.Borrower
	// Note hears why a lane that could have been is not used; nil: nobody does. It must not block.
	Note func(receiver string, by Transport, err error)
	// Folder is where receivers on this host have their sockets.
	Folder string
	// Timeout: nothing heard for so long ends a transfer. Default 4s.
	Timeout time.Duration
	// MaxRate bounds the bytes a second over all links; 0 = unlimited.
	MaxRate int64
	// MaxInflight bounds the transfers at once; more wait their turn inside Open. Default 32.
	MaxInflight int
	// MaxBuffered bounds the bytes of KV that wait for slow links. A transfer starts when all of
	// its KV (of LatePages: a few frames) fits beside that of the others in flight, or when it is
	// alone. Default 1 GiB.
	MaxBuffered int64
	// Events hears what happened. It must not block, nor call the Sender.
	Events func(Event)
}

// maxWaiting bounds the transfers that wait for one in flight to end.
const maxWaiting = 1024

// freeBuffers bounds the frame buffers kept for the next frames.
const freeBuffers = 64

// Sender is the prefill side: it carries KV to the receivers that metadata strings name. Its
// methods may be called from any goroutine and never wait for a peer.
type Sender struct {
	options SenderOptions
	clock   func() time.Duration
	gate    gate
	connect dialer
	ways    []Transport // of Transports, those with a lane among them
	free    chan []byte // whole frames of frameBytes
	backlog atomic.Int64
	work    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	peers  *Peers
	bucket bucket
	shuns  map[shun]*backoff
	active map[*Outgoing]bool
	ended  bool
}

// NewSender checks the options; its error names the peer that is neither a network nor a name.
func NewSender(o SenderOptions) (*Sender, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxInflight = cmp.Or(o.MaxInflight, DefaultMaxInflight)
	o.MaxBuffered = cmp.Or(o.MaxBuffered, DefaultMaxBuffered)
	if o.Transports == nil {
		o.Transports = []Transport{TCP}
	}
	if err := checkTransports(o.Transports); err != nil {
		return nil, err
	}
	if err := checkModels(o.Models); err != nil {
		return nil, err
	}
	if o.Events == nil {
		return nil, errors.New("transfer: no one hears the sender's events")
	}
	peers, err := ParsePeers(o.Peers)
	if err != nil {
		return nil, err
	}
	return &Sender{
		options: o, clock: newClock(), connect: dialTCP, peers: peers,
		bucket: bucket{rate: o.MaxRate},
		gate:   gate{most: o.MaxInflight, mostSize: o.MaxBuffered},
		free:   make(chan []byte, freeBuffers), active: map[*Outgoing]bool{},
		shuns: map[shun]*backoff{}, ways: waysOf(o),
	}, nil
}

// Parse reads a metadata string and checks all that a sender can know: encoding, version, sizes,
// one list of segments a model, each summing to the window, no slot twice, an address that the
// rule on peers does not refuse. The error is an *Error of reason InvalidMetadata. Nothing is
// dialled.
func (s *Sender) Parse(text string, w Window) (*Metadata, error) {
	m, bad := parseMetadata(text, w, len(s.options.Models))
	if bad == nil {
		bad = s.rule().check(m.target)
	}
	if bad != nil {
		return nil, bad
	}
	return m, nil
}

// Open starts a transfer under id, the engine's own, never given twice: dial, opening frame,
// answer. It returns at once; an Opened or Failed event follows. The error (an *Error of reason
// Busy, or Reset when the Sender was closed) says that nothing was started.
func (s *Sender) Open(id string, m *Metadata) (*Outgoing, error) {
	o := &Outgoing{
		sender: s, meta: m, total: totalBytes(m, s.options.Models),
		machine: NewDispatch(id, m, s.options.Models, s.options.Timeout),
		woken:   make(chan struct{}, 1), ordered: make(chan struct{}, 1),
		roomy: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	o.machine.room = s.room
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, fault(Reset, "the sender was closed")
	}
	if len(s.active) >= s.options.MaxInflight+maxWaiting {
		return nil, fault(Busy, "%d transfers are under way or waiting", len(s.active))
	}
	s.active[o] = true
	s.work.Go(func() { s.run(o) })
	return o, nil
}

// SetRate changes MaxRate for all transfers, those under way included.
func (s *Sender) SetRate(bytesPerSecond int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bucket.set(bytesPerSecond, s.clock())
}

// SetPeers replaces the list of peers for transfers to come, or keeps the old one and says what is
// wrong with the new.
func (s *Sender) SetPeers(list []string) error {
	peers, err := ParsePeers(list)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = peers
	return nil
}

func (s *Sender) rule() *Peers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers
}

// Inflight is the number of transfers under way, waiting ones included.
func (s *Sender) Inflight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// Backlog is the bytes of KV read from pages and not yet written to a connection.
func (s *Sender) Backlog() int64 { return s.backlog.Load() }

// Close cancels all transfers and waits for their goroutines, at most about one timeout.
func (s *Sender) Close() error {
	s.mu.Lock()
	s.ended = true
	active := slices.Collect(maps.Keys(s.active))
	s.mu.Unlock()
	for _, o := range active {
		o.Cancel()
	}
	s.work.Wait()
	return nil
}

// longestWait bounds how late a changed rate counts for a link that waits.
const longestWait = 100 * time.Millisecond

// pace is how many of n bytes may be written now, or how long to wait before asking again. A piece
// is small enough that every link, all of them sharing the rate, is heard of well within a timeout.
func (s *Sender) pace(n int) (piece int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	if wait := s.bucket.debt(now); wait > 0 {
		return 0, min(wait, longestWait)
	}
	if s.bucket.rate <= 0 {
		return n, 0
	}
	share := s.options.Timeout.Seconds() / 8 / float64(s.options.MaxInflight)
	piece = min(n, 64<<10, max(1, int(share*float64(s.bucket.rate))))
	s.bucket.take(piece, now)
	return piece, 0
}

// charge counts bytes that do not wait: an opening frame or a beat must not come late, the keys and
// values behind it pay for it.
func (s *Sender) charge(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bucket.take(n, s.clock())
}

// room is a buffer for a frame, an old one where it fits well.
func (s *Sender) room(size int) []byte {
	if whole := dataHeadSize + frameBytes; size <= whole && size > whole/2 {
		select {
		case buf := <-s.free:
			return buf[:size]
		default:
			return make([]byte, size, whole)
		}
	}
	return make([]byte, size)
}

func (s *Sender) recycle(buf []byte) {
	if cap(buf) == dataHeadSize+frameBytes {
		select {
		case s.free <- buf[:cap(buf)]:
		default:
		}
	}
}

// Outgoing is one transfer on the sending side. Send, Seal and SealChunk are called from one
// goroutine, after the Opened event; Cancel from any. None waits for the peer.
type Outgoing struct {
	sender *Sender
	meta   *Metadata
	total  int64 // bytes of KV from the window's begin on

	woken   chan struct{} // the queue or the machine has something new
	ordered chan struct{} // so have the orders
	roomy   chan struct{} // the queue has become shorter
	quit    chan struct{} // closed when the machine is over

	mu      sync.Mutex // guards what follows
	machine *Dispatch
	span    span
	by      Transport   // of the connection
	lane    *laneOut    // of the connection; nil: none
	orders  []*shipment // of late pages: what prepare has not packed yet, and seals behind it
	ended   bool        // nobody takes from the queue any more
}

// Send ships what a layer of a model has not sent yet of the window's positions below end. pages is
// the sequence's page table: position p stands in slot p%PageSize of pages[p/PageSize]. It is
// called after the layer's KV append (batch.Batch.LayerDone). The pages stay pinned until Done or
// Failed. Unless they are LatePages, the keys and values are copied out of them before it returns,
// and wait in memory, at most the KV of this transfer.
//
// After a failure Send does nothing and returns it; the Failed event comes once.
func (o *Outgoing) Send(model, layer, end int, pages []kvcache.PageID) error {
	pack, err := o.ready()
	if err != nil {
		return err
	}
	what := owed{model, layer, end, pages}
	if o.machine.late {
		what.pages = slices.Clone(pages) // The caller's may be another's in the next step.
		if lane := o.usable(); lane != nil {
			for _, piece := range pack.pieces(what, lane.most()) {
				o.early(piece)
				o.order(piece)
			}
			o.order(&shipment{owed: &what}) // What is wrong with it, if anything, is told in order.
			return nil
		}
		if bad := pack.stage(what); bad != nil {
			o.giveUp(bad)
			return bad
		}
		o.order(&shipment{owed: &what})
		return nil
	}
	if bad := pack.pack(what, o.ship); bad != nil {
		o.giveUp(bad)
		return bad
	}
	return nil
}

// ready is the packer, which is of the goroutine that calls Send, or why nothing can be sent.
func (o *Outgoing) ready() (*packer, error) {
	rate := o.sender.rate()
	o.mu.Lock()
	defer o.mu.Unlock()
	if rate > 0 {
		o.machine.SetFrame(int(min(frameBytes, max(leastFrame, rate/20))))
	}
	if err := o.machine.ready(); err != nil {
		return nil, err
	}
	return o.machine.pack, nil
}

// leastFrame is how small frames get where a rate is so low that a larger one would hold up a
// cancel.
const leastFrame = 4 << 10

func (s *Sender) rate() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bucket.rate
}

func (o *Outgoing) ship(p *parcel) {
	o.enqueue(func() {
		o.machine.ship(p)
		o.sender.backlog.Add(int64(len(p.whole)))
	})
}

// enqueue adds to the queue what somebody will still take from it.
func (o *Outgoing) enqueue(add func()) {
	o.mu.Lock()
	if !o.ended {
		add()
	}
	o.mu.Unlock()
	o.wake()
}

// waiting is how many bytes of KV may wait in memory: those of late pages wait where they are.
func (o *Outgoing) waiting() int64 {
	if o.machine.late {
		return min(o.total, framesAhead*frameBytes)
	}
	return o.total
}

func (o *Outgoing) wake() { signal(o.woken) }

// SealChunk says that all layers of all models have sent everything below end: another writer may
// resume there if this one is lost. Optional; an end at or below an earlier one says nothing new.
func (o *Outgoing) SealChunk(end int) {
	if end < o.meta.Window.End {
		o.seal(end)
	}
}

func (o *Outgoing) seal(end int) {
	what := &shipment{end: end}
	if o.machine.late {
		o.order(what)
		return
	}
	o.enqueue(func() { o.machine.queue = append(o.machine.queue, what) })
}

// Seal says that everything was sent. A Done event follows when the receiver has it all.
func (o *Outgoing) Seal() {
	o.mu.Lock()
	o.span.computed(o.sender.clock())
	o.mu.Unlock()
	o.seal(o.meta.Window.End)
}

// Cancel gives the transfer up and tells the receiver. A Failed event of reason Cancelled follows,
// unless Done or Failed was on its way.
func (o *Outgoing) Cancel() { o.giveUp(fault(Cancelled, "given up by the sender")) }

func (o *Outgoing) giveUp(why *Error) {
	o.mu.Lock()
	o.machine.GiveUp(why, o.sender.clock())
	if o.machine.Over() {
		o.over()
	}
	o.mu.Unlock()
	o.wake()
}

// over closes quit, once. The lock is held.
func (o *Outgoing) over() {
	select {
	case <-o.quit:
	default:
		close(o.quit)
	}
}

// turn is what a transfer's goroutine does next.
type turn struct {
	bytes    []byte    // frames of the machine to write
	shipment *shipment // or this
	over     bool      // or end
	deadline time.Duration
	events   []Event
}

// turn looks at the machine and takes from the queue. Frames of the machine go first. The last
// event is left to end: when it is told, nothing of the transfer is left.
func (o *Outgoing) turn(now time.Duration) (t turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.machine.Tick(now)
	t.deadline = o.machine.Deadline()
	if !o.machine.Over() {
		t.events = o.machine.Events()
	}
	switch {
	case len(o.machine.Output()) > 0:
		t.bytes = o.machine.Output()
	case o.machine.Over():
		t.over = true
	default:
		t.shipment = o.machine.peek()
	}
	if o.machine.Over() {
		o.over()
	}
	return t
}

// end empties the queue and hands out what is left to tell.
func (o *Outgoing) end() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sender.backlog.Add(-o.machine.clear())
	o.orders, o.ended = nil, true
	o.over()
	events := o.machine.Events()
	for i := range events {
		if e := &events[i]; e.Kind == Done {
			e.Hidden, e.Exposed = o.span.shares(o.sender.clock())
		}
	}
	return events
}
