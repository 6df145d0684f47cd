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
	s.events.told = true
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
	s.empty, s.turn.fill = 0, false
	s.decider(BuiltinName)
	s.turn.out, _ = s.builtin.Decide(v, s.turn.out[:0])
	if err := s.judged(v, s.turn.out, abi.CapChunkLengths); err != nil {
		panic("scheduler: the built-in policy broke a rule: " + err.Error())
	}
}

// accept judges an answer, and how many answers in a row have left work aside that would fit.
func (s *Scheduler) accept(v *abi.View, out []abi.Decision) error {
	granted := s.answered()
	err := s.judged(v, out, granted)
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

// answered notes who gave the answer and what it wants of the host, and returns what it was
// granted.
func (s *Scheduler) answered() (granted uint64) {
	if s.policy == Policy(&s.builtin) {
		s.decider(BuiltinName)
		return abi.CapChunkLengths
	}
	a, ok := s.policy.(Answerer)
	if !ok {
		s.decider("native")
		return abi.CapChunkLengths
	}
	name, granted, flags := a.Answered()
	s.decider(name)
	s.turn.fill = flags&abi.DescMayFill != 0
	return granted
}

// judged checks an answer against the records as they were shown, and turns it into an order. The
// first broken rule is the error; nothing of the answer counts then.
func (s *Scheduler) judged(v *abi.View, out []abi.Decision, granted uint64) error {
	s.turn.order = s.turn.order[:0]
	if err := s.judge.Check(v, out, granted); err != nil {
		return err
	}
	for _, d := range out {
		q := s.table.owner[d.Slot]
		q.reason, q.reasoner = d.Reason, s.turn.decider
		e := entry{q: q, tokens: int(d.Tokens), action: d.Action}
		if d.Tokens == abi.TokensAuto {
			e.tokens = auto
		}
		switch {
		case q.doomed:
			s.refuse(q, abi.RefusalCancelled)
		case d.Action == abi.ActionSkip:
			if q.skipAt = s.step; !q.holds { // Of those that hold pages noteStep tells.
				s.note(q, moment{what: Skipped})
			}
		case d.Action == abi.ActionRun && q.state != Decoding && q.remaining() == 0:
			s.refuse(q, abi.RefusalIdle)
		default:
			q.orderAt, q.order = s.step, len(s.turn.order)
			s.turn.order = append(s.turn.order, e)
		}
	}
	return nil
}

// judgeEmptiness is a fault when too many answers in a row let no prompt go on although one would
// fit.
func (s *Scheduler) judgeEmptiness() error {
	for _, e := range s.turn.order {
		if e.action == abi.ActionRun && e.q.state != Decoding {
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

// longestLook is how many of the queue are looked at, oldest first, for one that would fit.
const longestLook = 256

// somethingFits reports whether the budget, the sequences and the pages allow some prompt to go on.
// What it matched before may have to stay, so no page counts twice. Where decodes leave less than a
// unit of the budget nothing does, not even a reservation, which costs none: the rule of fcfs
// (abi/SPEC.md) names nothing then. With a unit or more it names somebody as long as anybody waits.
func (s *Scheduler) somethingFits() bool {
	left := s.limits.TokenBudget - s.states[Decoding]
	if left < s.limits.ChunkAlign {
		return false
	}
	s.turn.budget = left
	fits := false
	for _, q := range s.held {
		if fits {
			break
		}
		if n := q.remaining(); n > 0 && q.state != Decoding {
			n = s.chunk(entry{q: q, tokens: auto}, q.computed)
			need := s.pagesFor(q.computed+n) - q.pages()
			fits = n > 0 && (need <= 0 || s.room(need, false))
		}
	}
	if len(s.held) < s.limits.MaxSeqs && s.limits.MaxAdmit > 0 {
		for _, q := range s.queue[:min(len(s.queue), longestLook)] {
			if fits {
				break
			}
			if n := q.remaining(); n > 0 && !s.tenantFull(q) {
				n = s.chunk(entry{q: q, tokens: auto}, q.hint)
				fits = n > 0 && s.room(s.pagesFor(q.hint+n), true)
			}
		}
	}
	s.turn.budget, s.turn.ended = s.limits.TokenBudget, false
	return fits
}
