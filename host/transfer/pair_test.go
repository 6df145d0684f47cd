package transfer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
)

// pair is both machines of one transfer over two pipes of bytes, in virtual time. Nothing moves
// unless told to.
type pair struct {
	t    testing.TB
	rand *rand.Rand
	now  time.Duration
	ends
	window Window
	pages  []kvcache.PageID // the sender's page table
	slots  []int            // the receiver's slots, one a position of the window

	ledger *Ledger
	in     *Inbound
	out    *Outbound
	pack   *packer
	queue  []shipment
	there  []byte // on their way to the receiver
	back   []byte
	cut    bool // the connection is gone
	events []Event
}

// newPair grants a lease on random pages and opens a transfer to it. A test changes what it wants
// to see go wrong.
func newPair(t testing.TB, seed uint64, s shape, w Window) *pair {
	p := &pair{t: t, rand: rand.New(rand.NewPCG(seed, 1)), window: w}
	p.from, p.to = s.model(), s.model()
	pagesOf(p.from).fill(seed)
	p.pages, _ = slotsFor(p.rand, s, 0, w.End)
	_, p.slots = slotsFor(p.rand, s, w.Begin, w.End)
	var err error
	p.ledger, err = NewLedger(ReceiverOptions{
		Models: []Model{p.to}, Address: "127.0.0.1:7601", Random: chance(seed),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.connect(p.grant("lease"))
	return p
}

func (p *pair) grant(id string) *Metadata {
	p.t.Helper()
	text, err := p.ledger.Grant(id, Reservation{
		Window: p.window, Segments: [][]Segment{Compress(p.slots)},
	}, p.now)
	if err != nil {
		p.t.Fatal(err)
	}
	m, bad := parseMetadata(text, p.window, 1)
	if bad != nil {
		p.t.Fatal(bad)
	}
	return m
}

// connect begins a connection of a new sender.
func (p *pair) connect(m *Metadata) {
	p.in = p.ledger.Connect(p.now)
	p.out = NewOutbound("out", m, []Model{p.from}, DefaultTimeout)
	room := func(n int) []byte { return make([]byte, n) }
	p.pack = newPacker(m, []Model{p.from}, p.window.Begin, room)
	p.pack.most = 5 * p.from.SlotBytes
	p.there, p.back, p.queue, p.cut = nil, nil, nil, false
	p.out.Start(p.now)
}

// send queues what all layers owe below end, as the engine does it layer by layer.
func (p *pair) send(end int) {
	for layer := range p.from.Compat.Layers {
		bad := p.pack.pack(owed{0, layer, end, p.pages}, func(q *parcel) {
			p.queue = append(p.queue, shipment{parcel: q})
		})
		if bad != nil {
			p.t.Fatal(bad)
		}
	}
}

func (p *pair) seal(end int) { p.queue = append(p.queue, shipment{end: end}) }

// ship lets the sender put what it has on the pipe.
func (p *pair) ship() {
	p.there = append(p.there, p.out.Output()...)
	p.out.Written(len(p.out.Output()))
	for len(p.queue) > 0 && p.out.Writing() {
		next := p.queue[0]
		p.queue = p.queue[1:]
		if next.parcel == nil {
			p.out.sealBelow(next.end, p.now)
		} else {
			next.parcel.finish(p.out.pass)
			if p.out.data(next.parcel, p.now) {
				p.there = append(p.there, next.parcel.whole...)
				p.out.Crossed(len(next.parcel.whole), true)
			}
		}
		p.there = append(p.there, p.out.Output()...)
		p.out.Written(len(p.out.Output()))
	}
}

// move carries at most n bytes each way, in random pieces.
func (p *pair) move(n int) {
	p.ship()
	p.there = p.feed(p.there, n, p.in.Space, p.in.Filled)
	p.back = append(p.back, p.in.Output()...)
	p.in.Written(len(p.in.Output()))
	p.back = p.feed(p.back, n, p.out.Space, p.out.Filled)
	p.note()
}

// feed gives at most n bytes of src to one end, and returns the rest.
func (p *pair) feed(src []byte, n int, space func() []byte, filled filled) []byte {
	for n > 0 && len(src) > 0 {
		k := min(n, len(src), 1+p.rand.IntN(40))
		k = copy(space(), src[:k])
		filled(k, p.now)
		src, n = src[k:], n-k
	}
	return src
}

type filled = func(n int, now time.Duration)

// note keeps the events of both ends.
func (p *pair) note() {
	p.events = append(p.events, p.ledger.Events()...)
	p.events = append(p.events, p.out.Events()...)
}

// hangUp closes the connection at both ends.
func (p *pair) hangUp() {
	p.cut = true
	p.in.Closed(p.now)
	p.out.Closed(fault(Reset, "cut"), p.now)
	p.note()
}

// settle moves bytes and time until both ends are over or nothing happens for ten timeouts.
func (p *pair) settle() {
	for limit := p.now + 10*DefaultTimeout; p.now < limit; {
		for range 1000 {
			p.move(1 << 20)
			if len(p.there)+len(p.back)+len(p.out.Output())+len(p.in.Output()) == 0 {
				break
			}
		}
		if p.in.Over() || p.out.Over() {
			p.hangUp()
			return
		}
		p.now = min(p.in.Deadline(), p.out.Deadline())
		p.tick()
	}
}

func (p *pair) tick() {
	p.in.Tick(p.now)
	p.out.Tick(p.now)
	p.ledger.Tick(p.now)
	p.note()
}

// told is the events so far as words: "receive opened", "send failed timeout".
func (p *pair) told() []string {
	var words []string
	for _, e := range p.events {
		word := fmt.Sprintf("%v %v", e.Direction, e.Kind)
		if e.Err != nil {
			word += " " + e.Err.Reason.String()
		}
		words = append(words, word)
	}
	return words
}

// expect asserts the events, all of them, in any order of the two ends but in order at each.
func (p *pair) expect(want ...string) {
	p.t.Helper()
	got := p.told()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		for _, e := range p.events {
			p.t.Logf("%v %v %v: %v", e.Direction, e.Kind, e.ID, e.Err)
		}
		p.t.Fatalf("events:\n got %q\nwant %q", got, want)
	}
}

// noLeak asserts that nothing is left of any lease once it was released.
func (p *pair) noLeak() {
	p.t.Helper()
	if c := p.ledger.Counts(); c != (LeaseCounts{}) || p.ledger.writers != 0 ||
		len(p.ledger.byID) != 0 || len(p.ledger.line) != 0 {
		p.t.Fatalf("left: %+v, %d writers, %d ids, line %v",
			c, p.ledger.writers, len(p.ledger.byID), p.ledger.line)
	}
}
