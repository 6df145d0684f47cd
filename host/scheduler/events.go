package scheduler

import (
	"time"

	"github.com/kvrelay/engine/abi"
)

// noSlot is the slot in an event about a request that no policy was shown.
const noSlot = 1<<32 - 1

// events are what happened since the policy was last asked, at most abi.LimitEvents.
type events struct {
	list []abi.Event
	lost uint64 // Since the start: there were too many between two calls.
	told bool   // The policy has been shown the list: the next event begins another.
}

// tell appends an event. Of too many the older half is lost: a policy that is not asked needs none.
func (e *events) tell(event abi.Event) {
	if e.told {
		e.list, e.told = e.list[:0], false
	}
	if len(e.list) == cap(e.list) {
		half := len(e.list) / 2
		e.list = e.list[:copy(e.list, e.list[half:])]
		e.lost += uint64(half)
	}
	e.list = append(e.list, event)
}

// happened tells of a sequence; tokens, us and extra are by kind.
func (s *Scheduler) happened(kind uint16, q *sequence, event abi.Event) {
	event.Kind, event.ID, event.Slot = kind, uint64(q.id), noSlot
	if q.slot >= 0 {
		event.Slot = uint32(q.slot)
	}
	s.events.tell(event)
}

// finished tells that a sequence ended, well or not.
func (s *Scheduler) finished(q *sequence, reason Reason) {
	s.turnTo(q, moment{what: Ended, why: uint16(reason)})
	kind := uint16(abi.EventFinished)
	if reason == ReasonCancelled || reason == ReasonError {
		kind = abi.EventCancelled
	}
	s.happened(kind, q, abi.Event{
		Reason: uint16(reason), Tokens: uint32(q.generated()), US: s.since(q.arrival),
	})
}

// refuse counts a decision that is not carried out, and tells why: one of the abi.Refusal codes.
func (s *Scheduler) refuse(q *sequence, why uint64) {
	s.plan.Decision.Refused++
	q.refusedAt = s.step
	s.note(q, moment{what: Refused, why: uint16(why)})
	s.happened(abi.EventDecisionRefused, q, abi.Event{Reason: q.reason, Extra: why})
}

// trimmed counts a decision that is carried out with fewer tokens than it asked for.
func (s *Scheduler) trimmed(q *sequence, asked, tokens int) {
	s.plan.Decision.Trimmed++
	s.happened(abi.EventDecisionTrimmed, q, abi.Event{
		Reason: q.reason, Tokens: uint32(tokens), Extra: uint64(asked),
	})
}

// admitted tells that a sequence got its first pages, or got some again.
func (s *Scheduler) admitted(q *sequence) {
	s.turnTo(q, moment{what: Admitted, tokens: uint32(q.matched)})
	s.happened(abi.EventAdmitted, q, abi.Event{
		Reason: q.reason, Tokens: uint32(q.matched), US: s.since(q.arrival),
	})
}

// stepDone tells that a plan was computed, or failed to be.
func (s *Scheduler) stepDone(p *Plan, now time.Duration) {
	if p.Empty() {
		return
	}
	s.events.tell(abi.Event{
		Kind: abi.EventStepDone, Slot: noSlot, ID: p.Step,
		Tokens: uint32(p.Decodes + p.PrefillTokens),
		US:     uint32((now - s.now).Microseconds()), Extra: s.events.lost,
	})
}

// since is how many microseconds have passed at this step; at most the field holds.
func (s *Scheduler) since(then time.Duration) uint32 {
	return uint32(min(max(s.now-then, 0).Microseconds(), noSlot))
}
