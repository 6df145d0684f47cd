package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// world drives one scheduler with a fake model, clients, peers that read and write its pages, and a
// clock that counts steps.
type world struct {
	r      *rand.Rand
	o      Options
	s      *Scheduler
	models []*fakeModel // The main one, and drafts.
	mirror *mirror
	chance *chance
	now    time.Duration
	last   SequenceID
	live   []*client
	texts  [][]int32 // Prompts of the past, to be extended and repeated.
	marks  map[string]int
	// writers are peers that write to reserved slots; they go on until fenced, whatever happens to
	// the reservation.
	writers []*writer
	skips   bool
	items   int // One in so many tokens is followed by an item of vectors; 0: none.
}

// client is a request and what has come of it.
type client struct {
	req     Request
	entries [][]uint64 // What each model must hold of it.
	want    []int32
	got     []int32
	grant   *Grant
	writer  *writer
	// sent holds the positions announced for sending, read again and again until released.
	sent   []map[int]kvcache.PageID // In each model.
	chunks int
}

type writer struct {
	id       SequenceID
	flats    [][]int // In each model, the slot of each position from the match on.
	values   [][]uint64
	length   int // Of each of them.
	written  int
	gone     bool // Its reservation ended without delivery; it writes garbage now.
	released bool
}

func newWorld(seed uint64, marks map[string]int) *world {
	r := rand.New(rand.NewPCG(seed, 3))
	budget := 1 + r.IntN(30)
	align := 1
	if budget > 4 && r.IntN(3) == 0 {
		align = 1 + r.IntN(4)
	}
	o := Options{
		PageSize: 1 + r.IntN(5), Pages: 12 + r.IntN(40), MaxModelLen: 60, PrefixPages: -1,
		Role: 3, Seed: seed,
		Limits: Limits{
			MaxSeqs: 1 + r.IntN(8), TokenBudget: budget, ChunkMax: align + r.IntN(budget),
			ChunkAlign: align, MaxAdmit: r.IntN(4), MaxPreempt: 2, ReservePages: r.IntN(3),
			MaxQueue: 1 + r.IntN(12), HardAge: 60, MaxIdleSteps: 10, MaxEmptySteps: 5,
		},
	}
	switch r.IntN(4) {
	case 0:
		o.PrefixPages = 0
	case 1:
		o.PrefixPages = 1 + r.IntN(10)
	}
	if side := rand.New(rand.NewPCG(seed, 9)); side.IntN(2) == 0 {
		o.Window = 1 + side.IntN(20)
		o.Sinks = side.IntN(8) * side.IntN(2)
		if side.IntN(3) == 0 { // A pool that one request may need all of.
			o.Pages = o.Least(o.MaxModelLen) + 1 + side.IntN(4)
		}
	}
	c := &chance{r: r, laziness: r.Float64() * 0.8}
	if r.IntN(2) == 0 {
		c.badness = 0.2
	}
	if r.IntN(2) == 0 {
		c.skips = 0.3
	}
	if side := rand.New(rand.NewPCG(seed, 12)); side.IntN(2) == 0 {
		c.takes = 0.3 * side.Float64()
		c.flags = abi.DescMayFill * uint32(side.IntN(2))
	}
	w := &world{r: r, o: o, models: []*fakeModel{newFakeModel(o)}, chance: c, marks: marks}
	w.addDrafts(seed)
	if side := rand.New(rand.NewPCG(seed, 11)); side.IntN(2) == 0 {
		w.items = 5 + side.IntN(20)
	}
	var p Policy = c
	if r.IntN(4) == 0 {
		p = &FCFS{}
		c.skips, c.takes = 0, 0
	}
	w.skips = c.skips > 0
	w.mirror = newMirror(p)
	s, err := New(w.o, w.mirror)
	if err != nil {
		panic(err)
	}
	w.s, w.mirror.s = s, s
	if seed%3 == 0 {
		s.SetTenant(1, 500, 1)
	}
	s.SetTenant(2, 2000, 0)
	return w
}

// prompt is a new text, or one that repeats or extends another's start.
func (w *world) prompt() []int32 {
	var text []int32
	if len(w.texts) > 0 && w.r.IntN(3) > 0 {
		old := w.texts[w.r.IntN(len(w.texts))]
		text = slices.Clone(old[:1+w.r.IntN(len(old))])
	}
	for range w.r.IntN(25) {
		text = append(text, int32(w.r.IntN(3)))
		if w.items > 0 && w.r.IntN(w.items) == 0 {
			text = appendItem(text, w.r.IntN(5))
		}
	}
	text = append(text, int32(w.r.IntN(3)))
	text = text[:min(len(text), w.o.MaxModelLen-8)]
	w.texts = append(w.texts, text)
	if len(w.texts) > 20 {
		w.texts = w.texts[1:]
	}
	return text
}

func (w *world) submit() error {
	w.last++
	prompt, items := vectors(w.prompt())
	req := Request{
		ID: w.last, Prompt: prompt, Embeds: items, MaxNew: 1 + w.r.IntN(8), Arrival: w.now,
		Pinned: w.r.IntN(20) == 0, Tenant: uint32(w.last % 3), TokenGap: 3,
	}
	switch n := len(req.Prompt); {
	case n > 1 && w.r.IntN(4) == 0:
		req.Kind = RemoteSend
		req.End = 1 + w.r.IntN(n-1)
		req.End = whole(items, req.End)
		req.Begin = whole(items, w.r.IntN(max(req.End, 1)))
		if req.End == 0 {
			req.Kind = Local
		}
	case w.r.IntN(4) == 0:
		req.Kind = PrepareReceive
		req.End = whole(items, w.r.IntN(n))
	}
	if err := w.s.Submit(req); err != nil {
		w.marks["refused: "+kindOf(err)]++
		if kindOf(err) == "other" {
			return err
		}
		return nil
	}
	c := &client{req: req}
	_, c.want = w.models[0].oracle(req.Prompt, req.MaxNew, req.ID)
	tokens := append(slices.Clone(req.Prompt), c.want[:len(c.want)-1]...)
	for _, m := range w.models {
		c.entries = append(c.entries, m.entries(tokens))
		c.sent = append(c.sent, map[int]kvcache.PageID{})
	}
	w.live = append(w.live, c)
	return nil
}

func (w *world) client(id SequenceID) *client {
	for _, c := range w.live {
		if c.req.ID == id {
			return c
		}
	}
	return nil
}

// step plans, runs, checks and commits once.
func (w *world) step() error {
	w.now++
	p := w.s.Plan(w.now, StepCosts{LastStep: time.Millisecond})
	if err := w.judge(p); err != nil {
		return err
	}
	if w.r.IntN(60) == 0 {
		w.marks["abandoned"]++
		for _, send := range p.Sends { // A transfer may have begun all the same.
			w.client(send.ID).chunks++
		}
		w.s.Abandon(p)
		for _, id := range p.Failed {
			w.marks["failed"]++
			if err := w.ended(w.client(id)); err != nil {
				return err
			}
		}
		for _, shed := range p.Shed {
			if err := w.ended(w.client(shed.ID)); err != nil {
				return err
			}
		}
		return w.check()
	}
	rows, err := w.models[0].run(&p.Batch)
	if err != nil {
		return err
	}
	for i := range p.Drafts {
		if none, err := w.models[1+i].run(&p.Drafts[i]); err != nil || len(none) > 0 {
			return fmt.Errorf("draft %d: %d rows of logits, %v", i, len(none), err)
		}
	}
	for i := range p.Sends {
		w.send(&p.Sends[i])
	}
	for i := range p.Grants {
		w.granted(&p.Grants[i])
	}
	var tokens []int32
	for k, id := range p.Samples {
		tokens = append(tokens, sample(rows[k], id))
	}
	samples := slices.Clone(p.Samples)
	w.s.Commit(p, tokens, w.now)
	for _, shed := range p.Shed {
		w.marks["shed"]++
		if err := w.ended(w.client(shed.ID)); err != nil {
			return err
		}
	}
	for _, id := range p.Failed {
		w.marks["failed"]++
		if err := w.ended(w.client(id)); err != nil {
			return err
		}
	}
	for k, id := range samples {
		if err := w.token(w.client(id), tokens[k]); err != nil {
			return err
		}
	}
	return w.check()
}

// token hands a client its token and ends it with the last.
func (w *world) token(c *client, token int32) error {
	c.got = append(c.got, token)
	if !slices.Equal(c.got, c.want[:len(c.got)]) {
		return fmt.Errorf("sequence %d has %v, want %v", c.req.ID, c.got, c.want)
	}
	if len(c.got) < len(c.want) {
		return nil
	}
	w.marks["completed"]++
	w.remove(c)
	return w.s.Finish(c.req.ID, ReasonLength)
}

func (w *world) remove(c *client) {
	w.live = slices.DeleteFunc(w.live, func(x *client) bool { return x == c })
}

// ended drops a client whose sequence the scheduler has ended, or is told to have.
func (w *world) ended(c *client) error {
	if state, ok := w.s.State(c.req.ID); ok && state == Finished {
		return nil // Still being read.
	}
	w.remove(c)
	return nil
}

// judge checks a plan against what must hold for every plan.
func (w *world) judge(p *Plan) error {
	rows := p.Batch.Rows()
	if rows > w.s.limits.TokenBudget || rows != p.Decodes+p.PrefillTokens {
		return fmt.Errorf("step %d: %d rows, budget %d, %d decodes and %d prefill tokens",
			p.Step, rows, w.s.limits.TokenBudget, p.Decodes, p.PrefillTokens)
	}
	decoding := 0
	for _, q := range w.s.held {
		if q.state == Decoding {
			decoding++
			if q.idle > w.o.MaxIdleSteps+w.o.MaxSeqs {
				return fmt.Errorf("step %d: decode %d was left out for %d steps",
					p.Step, q.id, q.idle)
			}
		}
	}
	if w.s.turn.kept > 0 {
		w.marks["let in"]++
	} else if !w.skips && p.Decodes != min(decoding, w.s.limits.TokenBudget) {
		return fmt.Errorf("step %d: %d of %d running decodes have a token",
			p.Step, p.Decodes, decoding)
	}
	for k, chunk := range p.Chunks {
		q := w.s.byID[chunk.ID]
		n := chunk.End - chunk.Start
		l := &w.s.limits
		if len(p.Batch.Items[k].Embeds) > 0 {
			w.marks["vectors"]++
		}
		atItem := slices.ContainsFunc(q.embeds, func(e batch.Embedding) bool {
			return e.Start == chunk.End || e.End() == chunk.End
		})
		if !chunk.Decode && (n > l.ChunkMax ||
			n%l.ChunkAlign != 0 && chunk.End != q.target() && !atItem) {
			return fmt.Errorf("step %d: item %d is a chunk of %d, at most %d in units of %d",
				p.Step, k, n, l.ChunkMax, l.ChunkAlign)
		}
	}
	for i := range p.Drafts {
		if len(p.Drafts[i].Items) != len(p.Batch.Items) {
			return fmt.Errorf("step %d: draft %d has %d items of %d", p.Step, i,
				len(p.Drafts[i].Items), len(p.Batch.Items))
		}
		w.marks["drafts"] += len(p.Drafts[i].Items)
	}
	w.marks["preempted"] += len(p.Preempted)
	w.marks["taken"] += w.s.turn.preempted
	if t := w.s.tenants[1]; t.MaxSeqs > 0 && t.Running > t.MaxSeqs {
		return fmt.Errorf("step %d: tenant 1 holds %d requests, 1 may be", p.Step, t.Running)
	}
	if w.s.turn.preempted > w.o.MaxPreempt {
		return fmt.Errorf("step %d: the policy preempted %d, at most %d", p.Step,
			w.s.turn.preempted, w.o.MaxPreempt)
	}
	w.marks["copies"] += len(p.Batch.Copies)
	w.marks["forced"] += p.Decision.Forced
	w.marks["trimmed"] += p.Decision.Trimmed
	if p.Decision.Fallback {
		w.marks["fallback"]++
	}
	return w.mirror.err
}

// check verifies the scheduler, and that whatever is being read still is what it was.
func (w *world) check() error {
	if err := w.s.Check(); err != nil {
		return err
	}
	w.poison()
	if n := len(w.s.held); n > w.s.limits.MaxSeqs {
		return fmt.Errorf("%d sequences hold pages, at most %d may", n, w.s.limits.MaxSeqs)
	}
	for _, q := range w.s.held {
		w.marks["slid"] += q.tables[0].gone
		if q.barredAt == w.s.step {
			w.marks["barred"]++
		}
		if len(q.embeds) > 0 && q.matched >= q.embeds[0].End() {
			w.marks["item matched"]++
		}
	}
	for _, c := range w.live {
		if err := w.checkKV(c); err != nil {
			return err
		}
	}
	return nil
}

// checkKV verifies that every model holds what it must of a client's sequence, and of what is being
// sent.
func (w *world) checkKV(c *client) error {
	q := w.s.byID[c.req.ID]
	for i, m := range w.models {
		is := func(position int, page kvcache.PageID) bool {
			return page == kvcache.None ||
				m.slots[int(page)*m.pageSize+position%m.pageSize] == c.entries[i][position]
		}
		for position, page := range c.sent[i] {
			if !is(position, page) {
				return fmt.Errorf("remote send %d: position %d changed in model %d while it was "+
					"being read", c.req.ID, position, i)
			}
		}
		for position := range q.computed {
			if !is(position, q.tables[i].pages[position/m.pageSize]) {
				return fmt.Errorf("sequence %d, %v: position %d of %d is wrong in model %d",
					q.id, q.state, position, q.computed, i)
			}
		}
		if i > 0 && q.matched > 0 {
			w.marks["drafts matched"]++
		}
	}
	return nil
}

// addDrafts gives some worlds one or two models beside the main one.
func (w *world) addDrafts(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 13))
	for range r.IntN(6) - 3 {
		m := Memory{Pages: 12 + r.IntN(40), PrefixPages: []int{-1, -1, 0, 5}[r.IntN(4)]}
		if r.IntN(2) == 0 {
			m.Window = 1 + r.IntN(20)
			m.Sinks = r.IntN(8) * r.IntN(2)
		}
		w.o.Drafts = append(w.o.Drafts, m)
		w.models = append(w.models, newFakeDraft(w.o.PageSize, m))
	}
}

// poison overwrites the pages that nobody owns: whoever reads them gets a wrong token.
func (w *world) poison() {
	for i, m := range w.s.models {
		quarantined := map[kvcache.PageID]bool{}
		for _, pages := range m.quarantine {
			for _, page := range pages {
				quarantined[page] = true
			}
		}
		for page := range kvcache.PageID(m.options.Pages) {
			if m.pool.Refs(page) == 0 && !m.pool.Kept(page) && !quarantined[page] {
				for slot := range w.o.PageSize {
					w.models[i].slots[int(page)*w.o.PageSize+slot]++
				}
			}
		}
	}
}

func kindOf(err error) string {
	for name, is := range map[string]error{
		"queue full": ErrQueueFull, "too long": ErrTooLong, "pin": ErrPinTooLarge,
		"item": ErrItem,
	} {
		if errorsIs(err, is) {
			return name
		}
	}
	return "other"
}
