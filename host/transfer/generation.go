package transfer

import "github.com/kvrelay/engine/host/kvcache"

// pageName is a page of one model's pool.
type pageName struct {
	model int
	page  kvcache.PageID
}

// generations is the generation of each page that may be written: the epoch of the lease that the
// page was granted to last. A page without one belongs to nobody here. Epochs only grow, so a
// writer that comes late, whatever it holds, names a generation that is no page's any more.
type generations map[pageName]uint64

// free says whether nobody holds a page of the lease, or else which is held.
func (t generations) free(g *lease) (held pageName, ok bool) {
	g.eachPage(func(p pageName) {
		if _, taken := t[p]; taken {
			held, ok = p, true
		}
	})
	return held, !ok
}

// claim gives the pages of a lease its epoch as their generation.
func (t generations) claim(g *lease) { g.eachPage(func(p pageName) { t[p] = g.epoch }) }

// drop ends the generation of a lease's pages.
func (t generations) drop(g *lease) {
	g.eachPage(func(p pageName) {
		if t[p] == g.epoch {
			delete(t, p)
		}
	})
}

// eachPage calls do for each page of the lease, in the order of positions.
func (g *lease) eachPage(do func(pageName)) {
	for model := range g.layouts {
		l := &g.layouts[model]
		l.eachRun(l.window.Begin, l.window.End, func(r kvcache.SlotRange) {
			do(pageName{model, r.Page})
		})
	}
}

// eachRun calls do for the slots of [from, end), a run in one page at a time, those that are not
// sent left out.
func (l *layout) eachRun(from, end int, do func(kvcache.SlotRange)) {
	for at := from; at < end; {
		r := l.run(at, end)
		if r.Page >= 0 {
			do(r)
		}
		at += r.Count
	}
}

// current says why the writer of an epoch may not put the positions [from, end) of a model into
// their pages, if so: its lease was released, or one of the pages is of another generation.
func (l *Ledger) current(epoch uint64, model, from, end int) *Error {
	g := l.find(epoch)
	if g == nil || g.state != writing {
		return fault(NotFound, "the lease was released")
	}
	var bad *Error
	g.layouts[model].eachRun(from, end, func(r kvcache.SlotRange) {
		if now := l.holders[pageName{model, r.Page}]; now != epoch && bad == nil {
			bad = fault(NotFound, "page %d of model %d is of generation %d, this is %d",
				r.Page, model, now, epoch)
		}
	})
	return bad
}
