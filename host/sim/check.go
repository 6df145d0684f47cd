package sim

import (
	"fmt"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// The numbers I1 to I10 are those of the protocol's specification; what each checker stands for is
// said where it is.

// check verifies an instance after something happened to it.
func (i *instance) check() {
	if !i.up {
		return
	}
	if err := i.scheduler.Check(); err != nil { // I1, I6, and all of the scheduler's own.
		broken("%v: %v", i, err)
	}
	stats := i.scheduler.Stats()
	sum := stats.Free + stats.Held + stats.Evictable + stats.Pinned + stats.Quarantined
	if sum != stats.Total {
		broken("%v: pages %+v do not sum up", i, stats)
	}
	if stats.Holding > i.limits().MaxSeqs && stats.Holding > i.mostHeld { // I2
		broken("%v: %d sequences hold pages, %d may", i, stats.Holding, i.limits().MaxSeqs)
	}
	i.mostHeld = min(i.mostHeld, stats.Holding)
	i.world.markIf(stats.Quarantined > 0, QuarantineEntered)
	i.checkLeases()
	i.checkSends()
	i.poison()
	i.checks++
	if i.checks%16 == 0 {
		i.checkTree()
	}
}

func (i *instance) limits() *scheduler.Limits { return &i.config.Limits }

// checkLeases verifies that whoever may write, writes to pages that are kept for it.
func (i *instance) checkLeases() {
	for id, l := range i.leases {
		for _, p := range l.pages {
			pool := i.scheduler.Pool(p.model)
			if pool.Quarantined(p.page) || pool.Refs(p.page) == 1 {
				continue
			}
			broken("%v: lease %s may be written, its page %d has %d references",
				i, id, p.page, pool.Refs(p.page))
		}
	}
}

// checkSends verifies that no page is given back while its sequence is being sent: a transfer may
// read it until its end. Pages that slide out of a window are no part of that.
func (i *instance) checkSends() {
	if i.world.config.Shape.Window > 0 {
		return
	}
	for name, pages := range i.sending {
		for _, page := range pages {
			if i.scheduler.Pool(0).Refs(page) == 0 {
				broken("%v: page %d is given back while %s reads it", i, page, name)
			}
		}
	}
}

// checkAccounts verifies, when the engine has heard all, that it and the ledger of leases hold the
// same, and that what is in quarantine is what writers wait to be fenced for.
func (i *instance) checkAccounts() {
	leases, held := i.ledger.Counts(), i.stepper.Holdings()
	if leases.Granted+leases.Writing+leases.Sealed != held.Leases ||
		leases.Quarantined != held.Fencing {
		broken("%v: leases %+v, the engine holds %+v", i, leases, held)
	}
}

// poison spoils the pages that nobody owns, once each time they become free.
func (i *instance) poison() {
	for n, m := range i.models {
		pool := i.scheduler.Pool(n)
		for k := range m.poisoned {
			page := kvcache.PageID(k)
			free := pool.Refs(page) == 0 && !pool.Kept(page) && !pool.Quarantined(page)
			if free && !m.poisoned[k] {
				m.poison(page)
			}
			m.poisoned[k] = free
		}
	}
}

// checkTree verifies that every page in the tree holds its node's tokens (I5), which is also that
// nothing undelivered is there.
func (i *instance) checkTree() {
	for n, m := range i.models {
		t := newText(m.shape)
		i.scheduler.Cached(n, func(tokens []int32, first int, page kvcache.PageID) {
			t.extend(first, i.codes(tokens, first))
			if page == kvcache.None {
				return
			}
			if err := m.holds(page, first, len(tokens), t); err != nil {
				broken("%v: prefix tree of model %d: %v", i, n, err)
			}
		})
	}
}

// checkDrafts verifies what the models beside the main one hold of what was computed: no token says
// so.
func (i *instance) checkDrafts(p *scheduler.Plan) {
	for n := 1; n < len(i.models) && i.stepper.Err() == nil; n++ {
		input := p.Input(n)
		for k, chunk := range p.Chunks {
			t := newText(i.models[n].shape)
			t.extend(0, i.codes(i.scheduler.Tokens(chunk.ID)[:chunk.End], 0))
			if err := i.models[n].verify(&input.Items[k], t); err != nil {
				broken("%v: sequence %d in model %d: %v", i, chunk.ID, n, err)
			}
		}
	}
}

// codes are the inputs that tokens from position first on stand for, negative ones for items of
// vectors, each a run of one number.
func (i *instance) codes(tokens []int32, first int) []uint64 {
	var codes []uint64
	for at := first; at < len(tokens); at++ {
		token := tokens[at]
		if token >= 0 {
			codes = append(codes, codeOf(token))
			continue
		}
		start := at
		for start > 0 && tokens[start-1] == token {
			start--
		}
		digest, _ := i.scheduler.Item(token)
		rows := i.world.items[digest]
		if len(rows) == 0 {
			broken("%v: nobody knows which vectors token %d stands for", i, token)
		}
		codes = append(codes, rows[(at-start)%len(rows)])
	}
	return codes
}

// checkPlan verifies a plan before it runs.
func (i *instance) checkPlan(p *scheduler.Plan) {
	w := i.world
	if rows := p.Batch.Rows(); rows > i.limits().TokenBudget || rows != p.Decodes+p.PrefillTokens {
		broken("%v: a step of %d rows, %d decodes and %d prefill tokens, the budget is %d",
			i, rows, p.Decodes, p.PrefillTokens, i.limits().TokenBudget)
	}
	for _, g := range p.Grants {
		if g.End > 0 && g.Matched >= g.End { // I3
			broken("%v: %d matched of a window that ends at %d", i, g.Matched, g.End)
		}
		w.markIf(g.Matched > 0, MatchedOnReceiver)
		w.markIf(g.End == 0, NothingReserved)
	}
	for _, s := range p.Sends {
		w.markIf(s.CachedEnd > s.CachedStart, MatchedOnSender)
	}
	w.markIf(p.Decision.Fallback, PolicyFellBack)
	w.markIf(p.Decision.Forced > 0, Forced)
	w.markIf(len(p.Failed) > 0, SendStarved)
	w.markIf(len(p.Shed) > 0, Shed)
	w.markIf(len(p.Preempted) > 0 && i.config.Policy == Ruthless, PreemptedByPolicy)
	w.markIf(len(p.Preempted) > 0 && p.Decodes > 0 && i.config.Policy != Ruthless,
		PreemptedByDecode)
	w.markIf(len(p.Preempted) > 0 && len(i.sending) > 0, PreemptedDuringSend)
	for _, id := range p.Preempted {
		i.preempted[id] = true
	}
	for _, chunk := range p.Chunks {
		if i.preempted[chunk.ID] && chunk.Decode {
			w.mark(PreemptedAndResumed)
			delete(i.preempted, chunk.ID)
		}
	}
	i.markPages(p)
}

// markPages notes what became of pages in a plan.
func (i *instance) markPages(p *scheduler.Plan) {
	w := i.world
	for k := range p.Batch.Items {
		item := &p.Batch.Items[k]
		info, _ := i.scheduler.Info(p.Chunks[k].ID)
		first := info.Cached > 0 && item.Start == info.Cached && !p.Chunks[k].Decode
		copied := false
		for _, c := range p.Batch.Copies {
			copied = copied || c.To == item.Pages[item.Start/w.config.Shape.PageSize]
		}
		w.markIf(first && item.Start%w.config.Shape.PageSize > 0 && !copied, TailTakenOver)
		hollow := false
		for _, page := range item.Pages {
			hollow = hollow || page == kvcache.None
		}
		w.markIf(hollow, WindowSlid)
		w.markIf(hollow && first, HollowMatched)
	}
	if stats := i.scheduler.Stats(); stats.Evicted > i.evicted {
		i.evicted = stats.Evicted
		w.mark(Evicted)
	}
	w.markIf(i.scheduler.Stats().Pinned > 0, Pinned)
}

// mayWrite says what is wrong with a step's write to a page: it must be the writer's alone, and
// that of those who copy its start before.
func (i *instance) mayWrite(model int, page kvcache.PageID, copies int) error {
	if page == kvcache.None {
		return fmt.Errorf("%v: a write to a page that slid out", i)
	}
	if refs := i.scheduler.Pool(model).Refs(page); refs != 1+copies {
		return fmt.Errorf("%v: a write to page %d, which has %d references", i, page, refs)
	}
	return nil
}

// mayReceive says what is wrong with a peer's write: the slots must belong to a lease that is
// written, and no slot is written twice by one writer.
func (i *instance) mayReceive(model, layer int, r kvcache.SlotRange) error {
	size := i.world.config.Shape.PageSize
	for k := range r.Count {
		at := slot{model, int(r.Page)*size + r.First + k}
		l := i.leaseOf(at)
		if l == nil {
			return fmt.Errorf("%v: a peer writes to slot %+v, which no lease allows", i, at)
		}
		if to := (write{at, layer}); l.writes[to] > 0 {
			return fmt.Errorf("%v: a peer writes slot %+v twice", i, to)
		} else {
			l.writes[to]++
		}
	}
	return nil
}

func (i *instance) leaseOf(at slot) *lease {
	for _, l := range i.leases {
		if l.slots[at] {
			return l
		}
	}
	return nil
}

// granted notes a lease.
func (i *instance) granted(id string, r transfer.Reservation) {
	l := &lease{slots: map[slot]bool{}, writes: map[write]int{}, begin: r.Window.Begin}
	for model, segments := range r.Segments {
		l.order = append(l.order, slotsOf(segments))
		i.allow(l, model)
	}
	i.grants++
	l.epoch = i.grants
	i.leases[id] = l
}

// allow notes the slots of a model that a lease gives the right to write.
func (i *instance) allow(l *lease, model int) {
	size := i.world.config.Shape.PageSize
	for _, at := range l.order[model] {
		if at < 0 {
			continue
		}
		to := slot{model, at}
		if i.leaseOf(to) != nil {
			broken("%v: slot %+v is in two leases", i, to)
		}
		l.slots[to] = true
		l.count += i.models[model].Layers
		page := held{model, kvcache.PageID(at / size)}
		if n := len(l.pages); n == 0 || l.pages[n-1] != page {
			l.pages = append(l.pages, page)
		}
	}
}

// noteWaiting notes a writer whose opening was right and who was not let in yet.
func (i *instance) noteWaiting(epoch uint64) {
	for _, l := range i.leases {
		if l.epoch == epoch && !l.writing {
			i.world.mark(WriterQueued)
		}
	}
}

// note takes what a machine of the transfer says, before the engine hears it.
func (i *instance) note(e transfer.Event) {
	w := i.world
	w.trace("%v %v %v %v: %v", i, e.Direction, e.Kind, e.ID, e.Err)
	if e.Err != nil {
		if unexpected(e.Err.Reason) && w.counts[FrameDamaged] == 0 {
			broken("%v: transfer %s fails, though no byte was changed: %v", i, e.ID, e.Err)
		}
		w.markIf(e.Err.Reason == transfer.Timeout, TransferTimedOut)
		w.markIf(e.Err.Reason == transfer.Reset, ConnectionLost)
		damaged := e.Err.Reason == transfer.Checksum || e.Err.Reason == transfer.Malformed ||
			e.Err.Reason == transfer.Digest || e.Err.Reason == transfer.Incompatible
		w.markIf(damaged, DamageRefused)
	}
	if e.Direction == transfer.Sending {
		i.noteSend(e)
		return
	}
	l := i.leases[e.ID]
	switch e.Kind {
	case transfer.Opened:
		l.writing = true
		i.rewrite(l, e.From)
		l.resumed = e.From > l.begin
		w.markIf(l.resumed, ResumedBySecondSender)
	case transfer.Delivered:
		w.mark(Delivered)
		w.markIf(l.resumed, DeliveredByTwo)
		i.checkDelivered(e.ID, l)
		delete(i.leases, e.ID)
	case transfer.Failed:
		l.writing = false
	case transfer.Expired:
		w.mark(LeaseExpired)
		delete(i.leases, e.ID)
	case transfer.Fenced:
		w.mark(QuarantineLeft)
		delete(i.leases, e.ID)
	}
}

// rewrite lets the slots from a position on be written anew; what was sealed stays.
func (i *instance) rewrite(l *lease, from int) {
	for model, order := range l.order {
		for k, at := range order {
			for layer := 0; layer < i.models[model].Layers && l.begin+k >= from; layer++ {
				delete(l.writes, write{slot{model, at}, layer})
			}
		}
	}
}

// unexpected reports whether only a damaged frame, or a peer that breaks the protocol, is a reason
// for such a failure.
func unexpected(r transfer.Reason) bool {
	switch r {
	case transfer.Malformed, transfer.Incompatible, transfer.Checksum, transfer.OutOfPlace,
		transfer.Digest, transfer.PageFault:
		return true
	}
	return false
}

func (i *instance) noteSend(e transfer.Event) {
	if e.Kind == transfer.Failed {
		i.world.markIf(e.Err.Reason == transfer.NotFound, StaleMetadataRefused)
	}
}

// checkDelivered verifies that what was delivered is all of the window in all layers, once (I4).
func (i *instance) checkDelivered(id string, l *lease) {
	if len(l.writes) != l.count {
		broken("%v: lease %s is delivered with %d of %d slots written",
			i, id, len(l.writes), l.count)
	}
}

// checkEmpty verifies that nothing is left when all requests have ended (I8).
func (i *instance) checkEmpty() {
	if !i.up {
		return
	}
	i.checkTree()
	i.scheduler.Reset()
	stats := i.scheduler.Stats()
	leases, held := i.ledger.Counts(), i.stepper.Holdings()
	if stats.Free != stats.Total || stats.States != [scheduler.States]int{} {
		broken("%v: pages are not all free at the end: %+v", i, stats)
	}
	if leases != (transfer.LeaseCounts{}) || held.Requests+held.Labels+held.Leases+held.Sends+
		held.Fencing > 0 || len(i.leases) > 0 {
		broken("%v: left at the end: leases %+v, engine %+v", i, leases, held)
	}
}
