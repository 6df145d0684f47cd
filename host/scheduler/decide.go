package scheduler

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// decide asks the policy and leaves its judged answer in turn.order. A bad answer is dropped whole,
// and the built-in policy decides from the same view.
func (s *Scheduler) decide(costs StepCosts) {
	if !s.Work() {
		return
	}
	v := s.view(costs)
	d := &s.plan.Decision
	d.Asked = true
	out, err := s.policy.Decide(v, s.turn.out[:0])
	if err == nil {
		s.turn.out = out
		d.Entries = len(out)
		err = s.accept(v, out)
	}
	if err == nil {
		return
	}
	d.Fallback, d.Err = true, err
	s.empty = 0
	s.turn.out, _ = s.builtin.Decide(v, s.turn.out[:0])
	if err := s.judge(v, s.turn.out); err != nil {
		panic("scheduler: the built-in policy broke a rule: " + err.Error())
	}
}

// accept judges an answer, and how many answers in a row have left work aside that would fit.
func (s *Scheduler) accept(v *abi.View, out []abi.Decision) error {
	err := s.judge(v, out)
	if err == nil {
		err = s.judgeEmptiness()
	}
	if err == nil {
		return nil
	}
	if reporter, ok := s.policy.(FaultReporter); ok {
		reporter.ReportFault(abi.FaultBadOutput, err.Error())
	}
	return &Fault{Class: abi.FaultBadOutput, Step: s.step, Detail: err.Error()}
}

// judge checks an answer against the records as they were shown, and turns it into an order. The
// first broken rule is the error; nothing of the answer counts then.
func (s *Scheduler) judge(v *abi.View, out []abi.Decision) error {
	s.turn.order = s.turn.order[:0]
	if most := int(v.Header.DecisionsCap); len(out) > most {
		return fmt.Errorf("%d decisions, at most %d are allowed", len(out), most)
	}
	s.table.judging++
	for i, d := range out {
		if err := s.judgeOne(v, d); err != nil {
			return fmt.Errorf("decision %d, slot %d: %w", i, d.Slot, err)
		}
	}
	for _, d := range out {
		q := s.table.owner[d.Slot]
		q.reason = d.Reason
		tokens := int(d.Tokens)
		if d.Tokens == abi.TokensAuto {
			tokens = auto
		}
		switch {
		case d.Action == abi.ActionSkip:
			q.skipAt = s.step
		case q.state != Decoding && q.remaining() == 0:
			s.plan.Decision.Refused++ // Nothing to compute now.
		default:
			q.orderAt, q.order = s.step, len(s.turn.order)
			s.turn.order = append(s.turn.order, entry{q: q, tokens: tokens})
		}
	}
	return nil
}

// judgeOne checks the hard rules for one decision.
func (s *Scheduler) judgeOne(v *abi.View, d abi.Decision) error {
	if d.Slot >= v.Header.NSlots {
		return fmt.Errorf("the table has %d slots", v.Header.NSlots)
	}
	r := &v.Records[d.Slot]
	switch {
	case r.State&abi.StateLive == 0:
		return fmt.Errorf("the slot is free")
	case d.IDLow != uint32(r.ID):
		return fmt.Errorf("id_low is %d, the slot holds request %d", d.IDLow, r.ID)
	case s.table.judged[d.Slot] == s.table.judging:
		return fmt.Errorf("listed twice")
	case d.Reserved != 0:
		return fmt.Errorf("reserved is %d, must be 0", d.Reserved)
	}
	s.table.judged[d.Slot] = s.table.judging
	switch d.Action {
	case abi.ActionSkip:
		return nil
	case abi.ActionRun:
	case abi.ActionPreemptRecompute, abi.ActionPreemptSwap, abi.ActionShed:
		return fmt.Errorf("action %d (%s) needs a capability that is not granted",
			d.Action, abi.ActionName(d.Action))
	default:
		return fmt.Errorf("unknown action %d", d.Action)
	}
	switch {
	case d.Tokens == abi.TokensAuto:
	case r.State&abi.StateDecoding != 0 && d.Tokens != 1:
		return fmt.Errorf("%d tokens for a decode, must be 1", d.Tokens)
	case r.State&abi.StateDecoding == 0 && (d.Tokens == 0 || d.Tokens > r.RemainingPrefill):
		return fmt.Errorf("%d tokens, %d are left to prefill", d.Tokens, r.RemainingPrefill)
	}
	return nil
}

// judgeEmptiness is a fault when too many answers in a row let no prompt go on although one would
// fit.
func (s *Scheduler) judgeEmptiness() error {
	for _, e := range s.turn.order {
		if e.q.state != Decoding {
			s.empty = 0
			return nil
		}
	}
	if s.limits.MaxEmptySteps == 0 || !s.somethingFits() {
		s.empty = 0
		return nil
	}
	s.empty++
	if s.empty > s.limits.MaxEmptySteps {
		return fmt.Errorf("%d answers in a row let nothing prefill although something would fit",
			s.empty)
	}
	return nil
}

// somethingFits reports whether the budget, the sequences and the pages allow some prompt to go on.
// What it matched before may have to stay, so no page counts twice.
func (s *Scheduler) somethingFits() bool {
	s.turn.budget = max(s.limits.TokenBudget-s.states[Decoding], 0)
	fits := false
	for _, q := range s.held {
		if n := q.remaining(); n > 0 && q.state != Decoding && !fits {
			n = s.chunk(entry{q, auto}, n)
			need := s.pagesFor(q.computed+n) - len(q.pages)
			fits = n > 0 && (need <= 0 || s.room(need, false))
		}
	}
	if len(s.held) < s.limits.MaxSeqs && s.limits.MaxAdmit > 0 {
		for _, q := range s.queue {
			if n := q.remaining(); n > 0 && !fits {
				n = s.chunk(entry{q, auto}, n)
				fits = n > 0 && s.room(s.pagesFor(q.hint+n), true)
			}
		}
	}
	s.turn.budget, s.turn.ended = s.limits.TokenBudget, false
	return fits
}
