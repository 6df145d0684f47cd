package transfer

import (
	"cmp"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLease bounds the id of a lease, in bytes.
const maxLease = 256

// Ledger holds the leases of one receiver and judges who may write them. It is pure: time and
// chance are given in. An Inbound, one a connection, asks it; Events tells what came of it.
type Ledger struct {
	options ReceiverOptions
	key     key
	compat  string // digest of all models
	epoch   uint64 // of the last reservation
	leases  []*lease
	byID    map[string]*lease
	holders generations
	writers int      // seated
	line    []uint64 // epochs that wait for a seat, first come first
	events  []Event
}

// lease is the right to write some slots, held until it is released or expires. Its state moves by
// leaseMoves.
type lease struct {
	id      string
	state   state
	epoch   uint64
	token   Token
	window  Window
	layouts []layout
	expires time.Duration // counts while no writer is attached
	from    int           // everything below is sealed
	seated  bool          // its writer may send
}

// attached says that somebody may be writing the pages.
func (g *lease) attached() bool { return g.state == writing || g.state == quarantined }

// step moves a lease, if its table has the move, and does what the move says to the pages.
func (l *Ledger) step(g *lease, on input) (does action, ok bool) {
	row := leaseTable[g.state][on]
	if row.to == none {
		return 0, false
	}
	g.state = row.to
	if row.does.has(doFree) {
		l.remove(g)
	}
	if row.does.has(doExpire) {
		l.events = append(l.events, Event{Kind: Expired, Direction: Receiving, ID: g.id})
	}
	if row.does.has(doFenced) {
		l.events = append(l.events, Event{Kind: Fenced, Direction: Receiving, ID: g.id})
	}
	return row.does, true
}

// grant is what an Inbound may write once its opening frame was judged right.
type grant struct {
	pass
	id      string
	window  Window
	layouts []layout
	from    int
}

// outcome is what a writer did: sealed everything below end, which may be the last seal, or failed
// with err.
type outcome struct {
	end         int
	last        bool
	bytes, wire int64
	elapsed     time.Duration
	err         *Error
}

// NewLedger draws the key from the options' Random.
func NewLedger(o ReceiverOptions) (*Ledger, error) {
	o.setDefaults()
	if err := checkModels(o.Models); err != nil {
		return nil, err
	}
	if _, bad := parseEndpoint(o.Address); bad != nil {
		return nil, fmt.Errorf("transfer.advertise: %s", bad.Detail)
	}
	l := &Ledger{
		options: o, byID: map[string]*lease{}, compat: CompatDigest(compats(o.Models)),
		holders: generations{},
	}
	if _, err := io.ReadFull(o.Random, l.key[:]); err != nil {
		return nil, fmt.Errorf("draw the receiver's key: %w", err)
	}
	return l, nil
}

// Grant makes a lease: see Receiver.Grant.
func (l *Ledger) Grant(id string, res Reservation, now time.Duration) (string, error) {
	if err := l.mayGrant(id, res); err != nil {
		return "", err
	}
	g := &lease{
		id: id, state: granted, epoch: l.epoch + 1, window: res.Window, from: res.Window.Begin,
		expires: now + l.options.Lease,
	}
	if _, err := io.ReadFull(l.options.Random, g.token[:]); err != nil {
		return "", fmt.Errorf("draw the token of lease %q: %w", id, err)
	}
	flat := make([][]int, len(res.Segments))
	for i, segments := range res.Segments {
		kept := newLayout(res.Window, l.options.Models[i], slices.Clone(segments))
		g.layouts = append(g.layouts, kept)
		flat[i] = flatten(segments)
	}
	if held, ok := l.holders.free(g); !ok {
		return "", fmt.Errorf("lease %q: page %d of model %d belongs to lease %q still",
			id, held.page, held.model, l.find(l.holders[held]).id)
	}
	text, err := l.key.sign(letter{
		Version: ProtocolVersion, Address: l.options.Address, Lease: id,
		Token: hex.EncodeToString(g.token[:]), Epoch: g.epoch, Compat: l.compat, Models: flat,
		Free: max(res.FreePages, 0), Running: max(res.Running, 0),
	})
	if err != nil {
		return "", err
	}
	l.epoch++
	l.holders.claim(g)
	l.leases = append(l.leases, g)
	l.byID[id] = g
	return text, nil
}

func (l *Ledger) mayGrant(id string, res Reservation) error {
	if id == "" || len(id) > maxLease || !utf8.ValidString(id) {
		return fmt.Errorf("lease id %q: want 1 to %d bytes of UTF-8", id, maxLease)
	}
	if l.byID[id] != nil {
		return fault(Busy, "%s has a lease already", show(id))
	}
	if len(l.leases) >= l.options.MaxLeases {
		return fault(Busy, "%d leases are held, as many as may be", len(l.leases))
	}
	w := res.Window
	if w.Begin < 0 || w.End < w.Begin || w.End > MaxPositions {
		return fmt.Errorf("lease %q: no window: [%d, %d)", id, w.Begin, w.End)
	}
	if len(res.Segments) != len(l.options.Models) {
		return fmt.Errorf("lease %q: %d lists of slots for %d models",
			id, len(res.Segments), len(l.options.Models))
	}
	for i, segments := range res.Segments {
		if bad := checkSegments(segments, w.Len()); bad != nil {
			return fmt.Errorf("lease %q, model %d: %s", id, i, bad.Detail)
		}
	}
	return nil
}

// Renew starts the lease's time anew.
func (l *Ledger) Renew(id string, now time.Duration) bool {
	g := l.byID[id]
	if g == nil || g.state == quarantined {
		return false
	}
	g.expires = now + l.options.Lease
	return true
}

// Release ends a lease: see Receiver.Release. When it answers false, the Inbound of that epoch is
// to be told (Withdraw).
func (l *Ledger) Release(id string) (epoch uint64, fenced bool) {
	g := l.byID[id]
	if g == nil {
		return 0, true
	}
	does, _ := l.step(g, onRelease)
	return g.epoch, does.has(doFree)
}

// Tick lets leases expire.
func (l *Ledger) Tick(now time.Duration) {
	for _, g := range slices.Clone(l.leases) {
		if now >= g.expires {
			l.step(g, onExpire) // One with a writer has no such move.
		}
	}
}

// Events is what happened since the last call, in order.
func (l *Ledger) Events() []Event {
	events := l.events
	l.events = nil
	return events
}

// Counts counts the leases by state.
func (l *Ledger) Counts() (c LeaseCounts) {
	for _, g := range l.leases {
		switch g.state {
		case quarantined:
			c.Quarantined++
		case sealed:
			c.Sealed++
		case writing:
			c.Writing++
		default:
			c.Granted++
		}
	}
	return c
}

// find is the lease of an epoch, or nil. Leases stand in the order of their epochs.
func (l *Ledger) find(epoch uint64) *lease {
	i, ok := slices.BinarySearchFunc(l.leases, epoch, func(g *lease, epoch uint64) int {
		return cmp.Compare(g.epoch, epoch)
	})
	if !ok {
		return nil
	}
	return l.leases[i]
}

func (l *Ledger) remove(g *lease) {
	l.holders.drop(g)
	l.leases = slices.DeleteFunc(l.leases, func(other *lease) bool { return other == g })
	delete(l.byID, g.id)
}

// open judges an opening frame and attaches its writer to the lease. Nothing about a lease is
// told to someone who has not proved to hold a string of ours.
func (l *Ledger) open(o *opening, now time.Duration) (*grant, *Error) {
	proof, bad := l.key.verify(o.metadata)
	if bad != nil {
		return nil, bad
	}
	g := l.byID[o.lease]
	if g == nil || g.state == quarantined || !g.attached() && now >= g.expires {
		return nil, fault(NotFound, "lease %s is unknown, expired or released", show(o.lease))
	}
	token, bad := proof.token()
	if bad != nil || proof.Lease != g.id || proof.Epoch != g.epoch || o.epoch != g.epoch ||
		subtle.ConstantTimeCompare(token[:], g.token[:]) != 1 ||
		subtle.ConstantTimeCompare(o.token[:], g.token[:]) != 1 {
		return nil, fault(NotFound, "lease %s is held under another token or epoch", show(o.lease))
	}
	if found := l.differences(o.models); len(found) > 0 {
		return nil, fault(Incompatible, "%s", strings.Join(found, "; "))
	}
	if o.window != g.window {
		return nil, fault(InvalidMetadata, "window here [%d, %d), there [%d, %d)",
			g.window.Begin, g.window.End, o.window.Begin, o.window.End)
	}
	if g.state == sealed {
		return nil, fault(NotFound, "lease %s is delivered already", show(g.id))
	}
	if _, ok := l.step(g, onOpen); !ok {
		return nil, fault(Busy, "lease %s has a writer", show(g.id))
	}
	l.line = append(l.line, g.epoch)
	return &grant{
		pass: pass{g.epoch, g.token}, id: g.id, window: g.window, layouts: g.layouts, from: g.from,
	}, nil
}

// differences names what the peer's models hold otherwise than ours.
func (l *Ledger) differences(peer [][]property) []string {
	ours := l.options.Models
	if len(peer) != len(ours) {
		return []string{fmt.Sprintf("models: here %d, there %d", len(ours), len(peer))}
	}
	var all []string
	for i := range ours {
		for _, d := range differences(ours[i].Compat.properties(), peer[i]) {
			if i > 0 {
				d = fmt.Sprintf("model %d %s", i, d)
			}
			all = append(all, d)
		}
	}
	return all
}

// seat lets an attached writer send, if it is first in line and there is room.
func (l *Ledger) seat(epoch uint64) bool {
	g := l.find(epoch)
	if g == nil || len(l.line) == 0 || l.line[0] != epoch || l.writers >= l.options.MaxInflight {
		return false
	}
	l.line = l.line[1:]
	l.writers++
	g.seated = true
	l.events = append(l.events, Event{
		Kind: Opened, Direction: Receiving, ID: g.id, From: g.from,
	})
	return true
}

// settle takes a writer's outcome. A seal of a lease that was released meanwhile is refused.
func (l *Ledger) settle(epoch uint64, o outcome, now time.Duration) *Error {
	g, on := l.find(epoch), onSeal
	switch {
	case o.err != nil:
		on = onFail
	case o.last:
		on = onLastSeal
	}
	if g == nil || leaseTable[g.state][on].to == none {
		return fault(NotFound, "the lease was released")
	}
	does, _ := l.step(g, on)
	if does.has(doKeep) {
		g.from = o.end
		return nil
	}
	event := Event{
		Kind: Failed, Direction: Receiving, ID: g.id,
		Bytes: o.bytes, Wire: o.wire, Elapsed: o.elapsed, Err: o.err,
	}
	if does.has(doDeliver) {
		event.Kind = Delivered
		l.holders.drop(g) // From here on they may be read, and nobody may write them.
		l.unseat(g, now)
	}
	l.events = append(l.events, event)
	return nil
}

// leave says that the writer is fenced: it cannot reach the pages any more.
func (l *Ledger) leave(epoch uint64, now time.Duration) {
	g := l.find(epoch)
	if g == nil {
		return
	}
	if g.attached() {
		l.unseat(g, now)
	}
	l.step(g, onFenced)
}

// unseat ends a writer's part, and starts the lease's time anew.
func (l *Ledger) unseat(g *lease, now time.Duration) {
	if g.seated {
		l.writers--
	}
	l.line = slices.DeleteFunc(l.line, func(epoch uint64) bool { return epoch == g.epoch })
	g.seated = false
	g.expires = now + l.options.Lease
}

var errNoModels = errors.New("transfer: no model, or too many")

// checkModels is for both ends: what the frames cannot carry is refused before there is a frame.
func checkModels(models []Model) error {
	if len(models) == 0 || len(models) > MaxModels {
		return errNoModels
	}
	for i, m := range models {
		c := m.Compat
		if m.Pages == nil || c.PageSize <= 0 || c.Layers <= 0 || c.Layers > MaxLayers ||
			m.SlotBytes <= 0 || m.SlotBytes%2 != 0 || m.SlotBytes > MaxFrame {
			return fmt.Errorf("model %d: %d slots a page, %d layers (most %d), %d bytes a slot "+
				"(even, most %d)", i, c.PageSize, c.Layers, MaxLayers, m.SlotBytes, MaxFrame)
		}
		for _, p := range c.properties() {
			if len(p.value) > maxText {
				return fmt.Errorf("model %d: %s of %d bytes", i, p.name, len(p.value))
			}
		}
	}
	return nil
}

func compats(models []Model) []Compat {
	list := make([]Compat, len(models))
	for i, m := range models {
		list[i] = m.Compat
	}
	return list
}
