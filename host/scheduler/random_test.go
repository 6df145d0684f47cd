package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
)

var (
	seed  = flag.Uint64("seed", 1, "first seed of the random tests")
	seeds = flag.Uint64("seeds", 200, "number of seeds")
)

func errorsIs(err, target error) bool { return errors.Is(err, target) }

// TestRandom: under any policy, chunking, preemption, cancellation and transfer, every request gets
// the tokens that the model makes of its prompt alone, and every page has an owner.
func TestRandom(t *testing.T) {
	marks := map[string]int{}
	for n := *seed; n < *seed+*seeds; n++ {
		if err := runSeed(n, marks); err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
	}
	for _, mark := range []string{
		"completed", "preempted", "copies", "forced", "trimmed", "fallback", "abandoned",
		"cancelled waiting", "cancelled prefilling", "cancelled prepared", "cancelled receiving",
		"cancelled decoding", "cancelled finished", "sent", "delivered", "started", "recomputed",
		"quarantined", "refused: queue full", "refused: too long", "refused: pin", "pinned",
		"evicted", "garbage", "failed", "slid", "not sent", "delivered in vain",
		"vectors", "barred", "refused: item", "item matched",
		"taken", "shed", "drafts", "drafts matched",
	} {
		if marks[mark] == 0 && *seeds >= 200 {
			t.Errorf("no seed reached %q", mark)
		}
	}
	t.Logf("reached: %v", marks)
}

func runSeed(seed uint64, marks map[string]int) (err error) {
	w := newWorld(seed, marks)
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("panic: %v", e)
			if *seeds == 1 {
				panic(e)
			}
		}
	}()
	for range 150 {
		if err := w.act(); err != nil {
			return err
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	return w.drain()
}

// act does a few random things from outside.
func (w *world) act() error {
	for range w.r.IntN(3) {
		if err := w.submit(); err != nil {
			return err
		}
	}
	if len(w.live) > 0 && w.r.IntN(4) == 0 {
		if err := w.cancel(w.live[w.r.IntN(len(w.live))]); err != nil {
			return err
		}
	}
	for _, c := range append([]*client{}, w.live...) {
		if err := w.peer(c); err != nil {
			return err
		}
	}
	w.write()
	if w.r.IntN(80) == 0 {
		w.s.Reset()
	}
	return w.check()
}

func (w *world) cancel(c *client) error {
	state, ok := w.s.State(c.req.ID)
	if !ok {
		return fmt.Errorf("sequence %d is gone and its client was not told", c.req.ID)
	}
	held, err := w.s.Cancel(c.req.ID)
	if err != nil {
		return err
	}
	w.marks["cancelled "+state.String()]++
	if c.writer != nil && !c.writer.released {
		c.writer.gone = true
	}
	if reading := state == Finished || c.chunks > 0; c.req.Kind == RemoteSend && held != reading {
		return fmt.Errorf("cancelled %v remote send %d: held %t, being read %t",
			state, c.req.ID, held, reading)
	}
	if held && c.req.Kind == RemoteSend {
		return nil // It stays until its reader has gone.
	}
	w.remove(c)
	return nil
}

// peer lets the other instance of a hand-off do something, or nothing.
func (w *world) peer(c *client) error {
	state, ok := w.s.State(c.req.ID)
	if !ok {
		return fmt.Errorf("sequence %d is gone and its client was not told", c.req.ID)
	}
	switch {
	case c.req.Kind == RemoteSend && state == Finished && w.r.IntN(4) == 0:
		w.remove(c)
		return w.s.SendReleased(c.req.ID)
	case c.grant != nil && state == Prepared && w.r.IntN(3) == 0:
		return w.open(c)
	case c.grant != nil && state == Receiving && w.r.IntN(3) == 0:
		return w.receive(c)
	}
	return nil
}

// open starts a writer, or starts without one.
func (w *world) open(c *client) error {
	id := c.req.ID
	switch {
	case w.r.IntN(6) == 0:
		w.marks["recomputed"]++
		_, err := w.s.Recompute(id)
		return err
	case c.grant.End == 0 || w.r.IntN(6) == 0:
		if err := w.s.StartGenerate(id, c.grant.Matched+1); !errors.Is(err, ErrNotDelivered) &&
			!errors.Is(err, ErrWindow) {
			return fmt.Errorf("start of %d past what is here: %v", id, err)
		}
		w.marks["started"]++
		return w.s.StartGenerate(id, w.r.IntN(c.grant.Matched+1))
	}
	wr := &writer{id: id, length: c.grant.End - c.grant.Matched}
	for m, segments := range append([][]int{c.grant.Segments}, c.grant.Drafts...) {
		var flat []int
		for i := range segments[0] {
			at, n := segments[1+2*i], segments[2+2*i]
			for k := range n {
				if at < 0 {
					k = 0
				}
				flat = append(flat, at+k)
			}
		}
		if len(flat) != wr.length {
			return fmt.Errorf("grant %d: %d slots for [%d, %d) in model %d",
				id, len(flat), c.grant.Matched, c.grant.End, m)
		}
		wr.flats = append(wr.flats, flat)
		wr.values = append(wr.values, c.entries[m][c.grant.Matched:c.grant.End])
	}
	c.writer = wr
	w.writers = append(w.writers, wr)
	return w.s.Receiving(id)
}

// receive ends a transfer, well or badly, or goes on after it.
func (w *world) receive(c *client) error {
	id, q := c.req.ID, w.s.byID[c.req.ID]
	wr := c.writer
	switch {
	case q.delivered && w.r.IntN(5) == 0:
		w.remove(c)
		return w.s.Finish(id, ReasonStop)
	case q.delivered:
		w.marks["started"]++
		return w.s.StartGenerate(id, w.r.IntN(q.computed+1))
	case wr.written == wr.length || w.r.IntN(8) == 0:
		w.marks["delivered"]++
		wr.released = true
		end := c.grant.Matched + wr.written
		err := w.s.Delivered(id, end)
		if q.computed < end {
			w.marks["delivered in vain"]++
		}
		return err
	case w.r.IntN(8) == 0:
		wr.gone = true
		w.marks["recomputed"]++
		held, err := w.s.Recompute(id)
		if !held {
			return fmt.Errorf("recompute of %d with a live writer holds nothing", id)
		}
		return err
	case w.r.IntN(8) == 0:
		wr.gone = true
		w.marks["quarantined"]++
		w.remove(c)
		return w.s.Quarantine(id)
	}
	return nil
}

// write lets every writer write some slots, garbage after its reservation has ended, until it is
// fenced.
func (w *world) write() {
	var left []*writer
	for _, wr := range w.writers {
		switch {
		case wr.released:
			continue
		case wr.gone && w.r.IntN(5) == 0:
			if err := w.s.Release(wr.id); err != nil {
				panic(err)
			}
			continue
		case wr.gone:
			w.marks["garbage"]++
			for m, flat := range wr.flats {
				for _, slot := range flat {
					if slot >= 0 {
						w.models[m].slots[slot] = w.r.Uint64()
					}
				}
			}
		default:
			for range w.r.IntN(4) {
				if wr.written == wr.length {
					break
				}
				for m, flat := range wr.flats {
					if slot := flat[wr.written]; slot >= 0 {
						w.models[m].slots[slot] = wr.values[m][wr.written]
					}
				}
				wr.written++
			}
		}
		left = append(left, wr)
	}
	w.writers = left
}

func (w *world) granted(g *Grant) {
	c := w.client(g.ID)
	copied := *g
	copied.Pages = append([]kvcache.PageID{}, g.Pages...)
	c.grant = &copied
}

// send notes what a remote send announces; check reads it from now on.
func (w *world) send(p *Send) {
	c := w.client(p.ID)
	c.chunks++
	for m, pages := range append([][]kvcache.PageID{p.Pages}, p.Drafts...) {
		w.announce(p, m, pages)
	}
	if p.Last {
		w.marks["sent"]++
		for _, sent := range c.sent {
			if len(sent) != c.req.End-c.req.Begin {
				panic(fmt.Sprintf("sequence %d sent %d positions of [%d, %d)",
					p.ID, len(sent), c.req.Begin, c.req.End))
			}
		}
	}
}

// announce notes the positions of one model.
func (w *world) announce(p *Send, model int, pages []kvcache.PageID) {
	c, o := w.client(p.ID), w.models[model]
	sent := c.sent[model]
	for _, run := range [][2]int{{p.CachedStart, p.CachedEnd}, {p.FreshStart, p.FreshEnd}} {
		for at := run[0]; at < run[1]; at++ {
			if _, twice := sent[at]; twice {
				panic(fmt.Sprintf("sequence %d sends position %d twice", p.ID, at))
			}
			sent[at] = pages[at/o.pageSize]
			if o.slides(at, c.req.End) {
				w.marks["not sent"]++
				sent[at] = kvcache.None
			} else if sent[at] == kvcache.None {
				panic(fmt.Sprintf("sequence %d is to send position %d, which is gone", p.ID, at))
			}
		}
	}
}

// drain lets everything come to its end under the policy at hand, and then empties the cache.
func (w *world) drain() error {
	w.marks["evicted"] += int(w.s.Stats().Evicted)
	w.marks["pinned"] += w.s.Stats().Pinned
	for round := 0; len(w.live) > 0 || len(w.writers) > 0; round++ {
		if round > 4000 {
			return fmt.Errorf("no end: %+v", w.s.Stats())
		}
		for _, c := range append([]*client{}, w.live...) {
			if err := w.peer(c); err != nil {
				return err
			}
		}
		w.write()
		if err := w.step(); err != nil {
			return err
		}
	}
	w.s.Reset()
	if err := w.s.Check(); err != nil {
		return err
	}
	if st := w.s.Stats(); st.Free != st.Total || st.States != [States]int{} {
		return fmt.Errorf("not empty at the end: %+v", st)
	}
	return nil
}
