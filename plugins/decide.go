package plugins

import (
	"errors"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Decide lets the active module decide one step: it brings the guest's table up to date, calls
// pol_observe and pol_decide and appends the answer to out[:0]. Where a second module sets the
// chunk lengths, that one is shown the judged answer of the first. An error means that the built-in
// policy decides this step; it is a *Fault, or one of the errors of this package. Judging the
// answer is the caller's, who reports a broken rule with ReportFault. Only the engine's goroutine
// calls it.
func (h *Host) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn++
	h.step, h.now, h.answered = v.Header.Step, time.Duration(v.Header.NowNS), nil
	h.cutting = false
	if h.order == nil {
		h.observer.Stepped(Call{Fallback: true})
		return out[:0], ErrNoPolicy
	}
	answer, err := h.ask(h.order, v, out[:0])
	if err != nil {
		answer, err = h.standIn(v, out[:0], err)
	}
	if err != nil || h.chunk == nil {
		return answer, err
	}
	return h.cut(v, answer)
}

// standIn lets the module before decide while the active one is not trusted, if the rules say so.
func (h *Host) standIn(v *abi.View, out []abi.Decision, err error) ([]abi.Decision, error) {
	g := h.previous.order
	apart := errors.Is(err, ErrSetAside) || errors.Is(err, ErrProbation)
	if !apart || h.rules.OnFault != Previous || g == nil || g == h.order || g == h.chunk {
		return out, err
	}
	return h.ask(g, v, out)
}

// cut lets the second module set the chunk lengths of the first one's answer, which is judged
// before. Whatever goes wrong with the second, the engine's chunker cuts this step.
func (h *Host) cut(v *abi.View, order []abi.Decision) ([]abi.Decision, error) {
	s := h.answered
	if err := h.judge.Check(v, order, s.granted); err != nil {
		f := s.blamed(abi.FaultBadOutput, err.Error())
		h.answered = nil
		h.fault(s.g, f, true)
		return order[:0], f
	}
	h.shown = *v
	h.shown.Preset = order
	cuts, err := h.ask(h.chunk, &h.shown, h.cuts[:0])
	h.cuts, h.answered = cuts, s
	h.cutting = err == nil && s.g == h.order
	if err == nil && len(order) > 0 {
		copy(order, cuts)
		return order, nil
	}
	for i := range order {
		if order[i].Action == abi.ActionRun {
			order[i].Tokens = abi.TokensAuto
		}
	}
	return order, nil
}

// ask lets one module decide a step. A module on probation decides and is judged, and its answer is
// dropped.
func (h *Host) ask(g *generation, v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	call := Call{Policy: g.label, Cuts: g == h.chunk}
	answer, err := h.run(g, v, out, &call)
	call.Breaker = g.breaker.stage(h.now)
	call.Recovery, g.recovery = g.recovery, ""
	call.Fallback = err != nil
	h.observer.Stepped(call)
	if err != nil {
		return out, err
	}
	return answer, nil
}

// run is ask without telling anybody.
func (h *Host) run(g *generation, v *abi.View, out []abi.Decision, call *Call) (
	[]abi.Decision, error,
) {
	s, err := h.ready(g)
	if err != nil {
		return out, err
	}
	if s.turn+1 != h.turn {
		s.stale = true // It was not asked in the step before.
	}
	s.turn = h.turn
	watch := g.pace.watch()
	answer, a, err := s.step(v, out)
	wall, judged := watch.end()
	call.Wall = wall
	if err != nil {
		call.Wall = 0
		return out, err
	}
	call.Fuel, call.FuelMax, call.Memory = a.fuel, a.limit, a.memory
	g.counts.called(call.Wall, a.fuel, a.memory)
	probation := g.breaker.stage(h.now) == HalfOpen
	if a.fault == nil && (probation || g == h.chunk) {
		a.fault = h.verdict(s, v, answer)
	}
	if a.fault != nil {
		a.fault.Fuel, a.fault.Limit = a.spent(), a.limit
		h.fault(g, a.fault, !a.keep)
		return out, a.fault
	}
	s.last = a
	h.paced(g, judged, watch.measured || !threadTimed)
	if g.breaker.ok(&h.rules) {
		g.recovery = Recovered
		h.log.Info("policy trusted again", "policy", g.label, "clean steps", h.rules.CleanSteps)
		h.admit()
	}
	if probation {
		return out, ErrProbation
	}
	h.answered = s
	return answer, nil
}

// verdict judges an answer before somebody acts on it, or instead. A module that is shown an empty
// answer to cut is not blamed for what it says of it.
func (h *Host) verdict(s *sandbox, v *abi.View, answer []abi.Decision) *Fault {
	var err error
	switch {
	case s.g != h.chunk:
		err = h.judge.Check(v, answer, s.granted)
	case len(v.Preset) > 0:
		err = judgeCut(&h.judge, v, answer)
	}
	if err == nil {
		return nil
	}
	return s.g.fault(abi.FaultBadOutput, exportDecide, "%v", err)
}

// ready returns the sandbox that decides this step, the spare if there is no other.
func (h *Host) ready(g *generation) (*sandbox, error) {
	if g.breaker.stage(h.now) == Open {
		return nil, ErrSetAside
	}
	if g.current == nil {
		if g.current = g.takeSpare(); g.current != nil {
			g.recovery = Recovered
		}
	}
	if g.current != nil {
		g.decided = true
		return g.current, nil
	}
	if f := g.spareFault(); f != nil {
		h.fault(g, f, false)
		return nil, f
	}
	return nil, ErrWarming
}

// paced acts on how long a module's calls take.
func (h *Host) paced(g *generation, took time.Duration, measured bool) {
	slow, stuck := g.pace.took(took, h.rules.Slow, measured)
	switch {
	case stuck:
		h.fault(g, g.fault(abi.FaultSlow, exportDecide, "%d calls in a row took more than %v each",
			paceStuck, paceTimes*h.rules.Slow), false)
	case slow:
		f := g.fault(abi.FaultSlow, exportDecide, "of the latest %d calls more than one in a "+
			"hundred took longer than %v", paceWindow, h.rules.Slow)
		f.Step = h.step
		h.log.Warn("policy is slow", "policy", g.label, "step", f.Step, "p99", g.counts.p99(),
			"limit", h.rules.Slow)
		h.observer.Faulted(f)
	}
}

// grave says whether one fault of a class suffices to set a module aside.
func grave(c abi.FaultClass) bool {
	switch c {
	case abi.FaultLoadLint, abi.FaultLoadCompile, abi.FaultLoadLink, abi.FaultLoadInit,
		abi.FaultSlow:
		return true
	}
	return false
}

// fault counts and tells of a fault in a step, and throws the sandbox away.
func (h *Host) fault(g *generation, f *Fault, discard bool) {
	f.Step = h.step
	g.counts.faulted(f)
	h.log.Warn("policy fault", "policy", g.label, "class", string(f.Class), "call", f.Call,
		"step", f.Step, "detail", f.Detail)
	h.observer.Faulted(f)
	if discard {
		if g.current != nil && f.Call != "" {
			h.saver.take(g.current, *f, g == h.chunk)
		}
		g.discard()
	}
	if g.breaker.fault(h.now, &h.rules, grave(f.Class)) {
		g.recovery = Bypassed
		h.log.Warn("policy set aside", "policy", g.label, "for", g.breaker.pause,
			"on_fault", string(h.rules.OnFault))
		h.admit()
	}
}

// admit brings Admits in line with the breakers.
func (h *Host) admit() {
	distrusted := func(g *generation) bool { return g != nil && g.breaker.pause > 0 }
	h.refuses.Store(h.rules.OnFault == StopAdmitting &&
		(distrusted(h.order) || distrusted(h.chunk)))
}

// ReportFault says that the answer of the last Decide broke a rule. The sandbox is thrown away as
// after a trap.
func (h *Host) ReportFault(class abi.FaultClass, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.answered
	h.answered = nil
	if s == nil || s.g.current != s {
		return
	}
	h.fault(s.g, s.blamed(class, detail), true)
}

// blamed is the fault of a module whose latest answer somebody else found wrong.
func (s *sandbox) blamed(class abi.FaultClass, detail string) *Fault {
	f := s.g.fault(class, exportDecide, "%s", detail)
	f.Fuel, f.Limit = s.last.spent(), s.last.limit
	return f
}
