package scheduler

import (
	"slices"
	"time"
)

// Happening is a kind of thing that happens to a sequence.
type Happening uint8

// What happens to a sequence, in the order of a life.
const (
	// Queued: it waits to be computed. Last is how many sequences wait, it included, and Tokens how
	// many tokens of its prompt are here or in the prefix cache.
	Queued Happening = iota
	// PassedOver: the policy listed others, for Steps steps, in Tokens of which they used up the
	// step's tokens.
	PassedOver
	// Refused: the policy listed it, and it could not run; Why is an abi.Refusal code.
	Refused
	// Skipped: the policy left it out on purpose.
	Skipped
	// PutFirst: the starvation guard put it before the policy's list.
	PutFirst
	// Admitted: it got its first pages; Tokens were in the prefix cache.
	Admitted
	// Computed: Steps chunks of its prompt, Tokens in all, the last of Last.
	Computed
	// FirstToken was sampled.
	FirstToken
	// HeldBack: it decodes, and a step went by without a token because there were more decodes than
	// tokens.
	HeldBack
	// Preempted: it lost its pages, with Tokens computed; Why is an abi.Preempted code.
	Preempted
	// Reserved: pages for Tokens of its prompt are reserved; somebody else computes them.
	Reserved
	// Written: somebody opened the reservation for writing.
	Written
	// Arrived: all that was to come has been delivered, Tokens of its prompt.
	Arrived
	// Recomputed: what was to come was lost, and is computed here.
	Recomputed
	// Going: KV of Tokens more of its prompt was handed to the transfer.
	Going
	// Acknowledged: the receiver has it all.
	Acknowledged
	// Doomed: somebody cancels it who has to be waited for.
	Doomed
	// WasShed: the policy refused it for good.
	WasShed
	// Ended; Why is a Reason.
	Ended
)

// happenings are their names, in order.
var happenings = [...]string{
	"queued", "passed over", "refused", "skipped", "put first", "admitted", "computed",
	"first token", "held back", "preempted", "reserved", "written", "arrived", "recomputed",
	"going", "acknowledged", "doomed", "shed", "ended",
}

// String is the happening in words.
func (h Happening) String() string {
	if int(h) >= len(happenings) {
		return "invalid"
	}
	return happenings[h]
}

// moment is one line of a story. Equal ones of one phase of a life are one line.
type moment struct {
	what                Happening
	reason, why         uint16
	policy              uint16 // In Scheduler.deciders.
	steps, tokens, last uint32
	from, to            time.Duration
	step                uint64 // The first.
}

// maxMoments bounds a story. The first keptMoments stay; of those after them the oldest go.
const maxMoments, keptMoments = 24, 6

// story is what happened to a sequence, in bounded memory.
type story struct {
	id      SequenceID
	moments [maxMoments]moment
	n, lost int
	phase   int // Lines from here on are of the phase that lasts.
	// What the scheduler had counted when the phase began, and what was noted since: the rest was
	// passed over.
	asked, spent, noted uint64
}

// maxPast is how many stories are kept of sequences that are gone, the oldest going first.
const maxPast = 512

// stories are those that are not a live sequence's: the past, and what is reused for the next.
type stories struct {
	past  [maxPast]*story
	next  int
	spare *story
}

// begin returns an empty story.
func (p *stories) begin(id SequenceID) *story {
	t := p.spare
	if p.spare = nil; t == nil {
		t = &story{}
	}
	*t = story{id: id}
	return t
}

// keep puts a finished story into the past, in the place of the oldest.
func (p *stories) keep(t *story) {
	p.spare = p.past[p.next]
	p.past[p.next] = t
	p.next = (p.next + 1) % maxPast
}

// note adds a moment to the phase that lasts.
func (s *Scheduler) note(q *sequence, m moment) {
	t := q.story
	if m.what == Refused || m.what == Skipped {
		m.reason = q.reason
		if q.notedAt != s.step { // Of the steps that could pass it over this was none.
			q.notedAt = s.step
			t.noted++
		}
	}
	m.policy, m.step = s.turn.decider, s.step
	m.to = max(s.now, m.from, q.arrival)
	if m.from == 0 {
		m.from = m.to
	}
	m.steps = max(m.steps, 1)
	for i := t.n - 1; i >= t.phase; i-- {
		o := &t.moments[i]
		if o.what == m.what && o.why == m.why && o.reason == m.reason && o.policy == m.policy {
			o.to, o.last = m.to, m.last
			o.steps += m.steps
			o.tokens += m.tokens
			return
		}
	}
	if t.n == maxMoments {
		copy(t.moments[keptMoments:], t.moments[keptMoments+1:])
		t.n--
		t.lost++
		if t.phase > keptMoments {
			t.phase--
		}
	}
	t.moments[t.n] = m
	t.n++
}

// turnTo begins another phase of a life with a moment. What the last one was passed over for is
// added first.
func (s *Scheduler) turnTo(q *sequence, m moment) {
	if passed, spent := s.passedOver(q); passed > 0 {
		s.note(q, moment{
			what: PassedOver, steps: uint32(passed), tokens: uint32(spent), from: s.phaseBegan(q),
		})
	}
	q.story.phase = q.story.n
	s.note(q, m)
	q.story.asked, q.story.spent, q.story.noted = s.asked, s.spent, 0
}

// queued begins the story of a new sequence, or the wait of one that others have written.
func (s *Scheduler) queued(q *sequence) {
	if q.story == nil {
		q.story = s.stories.begin(q.id)
		q.story.asked, q.story.spent = s.asked, s.spent
		s.turnTo(q, moment{what: Queued, tokens: uint32(q.hint), last: uint32(len(s.queue)),
			from: max(q.arrival, 1)})
		return
	}
	s.turnTo(q, moment{what: Queued, tokens: uint32(q.computed), last: uint32(len(s.queue))})
}

// displaced begins the wait of a sequence that has just lost its pages; this step does not count as
// one that passed it over.
func (s *Scheduler) displaced(q *sequence, m moment) {
	s.turnTo(q, m)
	q.notedAt, q.story.noted = s.step, 1
}

// phaseBegan is when the phase that lasts began.
func (s *Scheduler) phaseBegan(q *sequence) time.Duration {
	if q.story.phase < q.story.n {
		return q.story.moments[q.story.phase].from
	}
	return s.now
}

// passedOver is in how many steps since the phase began a policy was asked and did not name the
// waiting sequence, and in how many of them the step's tokens were used up.
func (s *Scheduler) passedOver(q *sequence) (steps, spent uint64) {
	if q.state != Waiting || q.holds {
		return 0, 0
	}
	asked, noted := s.asked-q.story.asked, q.story.noted
	steps = asked - min(noted, asked)
	return steps, min(s.spent-q.story.spent, steps)
}

// decider remembers who decides this step.
func (s *Scheduler) decider(name string) {
	s.plan.Decision.By = name
	for i := len(s.deciders) - 1; i >= 0; i-- { // The latest is the likeliest.
		if s.deciders[i] == name {
			s.turn.decider = uint16(i)
			return
		}
	}
	if len(s.deciders) == maxDeciders {
		s.turn.decider = 0
		return
	}
	s.deciders = append(s.deciders, name)
	s.turn.decider = uint16(len(s.deciders) - 1)
}

// maxDeciders bounds the names of policies that stories tell apart; those beyond are "others".
const maxDeciders = 256

// BuiltinName is the decider's name of a step that no module decided.
const BuiltinName = "native:fcfs"

// noteStep closes the stories' step: who among those that hold pages was left out, and whether the
// tokens were used up.
func (s *Scheduler) noteStep() {
	if !s.plan.Decision.Asked {
		return
	}
	spent := uint32(0)
	if s.turn.budget == 0 || s.turn.ended {
		s.spent++
		spent = 1
	}
	s.asked++
	for _, q := range s.held {
		left := q.plannedAt != s.step && q.notedAt != s.step
		switch {
		case !left || q.state == Prepared || q.state == Receiving:
		case q.skipAt == s.step && q.forcedAt != s.step:
			s.note(q, moment{what: Skipped})
		case q.state == Decoding:
			s.note(q, moment{what: HeldBack})
		case q.remaining() > 0:
			s.note(q, moment{what: PassedOver, tokens: spent})
		}
	}
}

// Moment is one line of what happened to a sequence. What says what the numbers mean.
type Moment struct {
	What Happening
	// Why is a code of the host's, Reason the policy's own, Policy who decided.
	Why, Reason uint16
	Policy      string
	// From and To are the first and the last time, Step the first step, Steps how many.
	From, To            time.Duration
	Step                uint64
	Steps, Tokens, Last int
}

// Story returns what happened to a sequence, by when it began, also to one of the last that are
// gone, and how many lines of it were dropped from the middle; false when nothing is known of it.
func (s *Scheduler) Story(id SequenceID) (moments []Moment, lost int, ok bool) {
	var t *story
	q := s.byID[id]
	if q != nil {
		t = q.story
	} else {
		for _, past := range s.stories.past {
			if past != nil && past.id == id {
				t = past
			}
		}
	}
	if t == nil {
		return nil, 0, false
	}
	for _, m := range t.moments[:t.n] {
		moments = append(moments, s.told(m))
	}
	if q != nil {
		if passed, spent := s.passedOver(q); passed > 0 {
			moments = append(moments, s.told(moment{
				what: PassedOver, steps: uint32(passed), tokens: uint32(spent),
				policy: s.turn.decider, from: s.phaseBegan(q), to: s.now,
			}))
		}
	}
	slices.SortStableFunc(moments, func(a, b Moment) int { return compare(a.From, b.From) })
	return moments, t.lost, true
}

func (s *Scheduler) told(m moment) Moment {
	return Moment{
		What: m.what, Why: m.why, Reason: m.reason, Policy: s.deciders[m.policy],
		From: m.from, To: m.to, Step: m.step,
		Steps: int(m.steps), Tokens: int(m.tokens), Last: int(m.last),
	}
}

// Acknowledge notes in a sequence's story that a receiver has all of it. An unknown one is none.
func (s *Scheduler) Acknowledge(id SequenceID) {
	if q := s.byID[id]; q != nil {
		s.note(q, moment{what: Acknowledged})
	}
}
