package main

import (
	"time"

	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/metrics"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// watch turns what an engine and the HTTP servers tell into series.
type watch struct {
	metrics *metrics.Metrics
	meter   *meter // nil where nobody asks
	policy  func() string
	leases  func() transfer.LeaseCounts
	lanes   func() (made, busy, held int)
	// Counters of the scheduler that were already added to the series.
	seen scheduler.Stats
	// The transfers that go on, by direction and name.
	open [2]map[string]bool
}

// state is where the metrics count a scheduler's state.
func state(s scheduler.State) metrics.State {
	return [...]metrics.State{
		metrics.Waiting, metrics.Prefilling, metrics.Prepared, metrics.Receiving, metrics.Decoding,
		metrics.Finished,
	}[s]
}

// Step implements engine.Watch.
func (w *watch) Step(s engine.Step) {
	w.state(s.Stats)
	if s.Number == 0 {
		return
	}
	if w.meter != nil {
		w.meter.step(s.PrefillTokens, s.Decodes, s.Run)
	}
	m := w.metrics
	m.StepStage(metrics.Hear, s.Hear)
	m.StepStage(metrics.Plan, s.Plan)
	m.StepStage(metrics.Run, s.Run)
	m.StepStage(metrics.Commit, s.Commit)
	m.StepStage(metrics.Deliver, s.Deliver)
	m.StepTokens(s.PrefillTokens, s.Decodes)
	for n := range s.Preempted {
		if n < s.Decision.Preempted {
			m.Preempted(metrics.CausePolicy)
		} else {
			m.Preempted(metrics.CauseMemory)
		}
	}
	d := s.Decision
	if !d.Asked {
		return
	}
	policy := policyOf(w.policy())
	m.PolicyDecisions(policy, metrics.VerdictUsed, max(0, d.Entries-d.Trimmed-d.Refused))
	m.PolicyDecisions(policy, metrics.VerdictTrimmed, d.Trimmed)
	m.PolicyDecisions(policy, metrics.VerdictRefused, d.Refused)
	for range d.Forced {
		m.PolicyStarved(policy, metrics.BoundHardAge)
	}
	if d.Fallback {
		m.PolicyFallback(policy)
	}
}

// state sets the gauges, and adds to the counters what has come since the last time.
func (w *watch) state(s scheduler.Stats) {
	m := w.metrics
	var in [metrics.Finished]int
	for from := range scheduler.States {
		if from != scheduler.Finished {
			in[state(from)] = s.States[from]
		}
		for to := range scheduler.States {
			for range s.Moves[from][to] - w.seen.Moves[from][to] {
				m.RequestMoved(state(from), state(to))
			}
		}
	}
	m.SetRequests(in)
	m.SetPages(metrics.Pages{Free: s.Free, Pinned: s.Held + s.Pinned, Evictable: s.Evictable,
		Quarantine: s.Quarantined, Capacity: s.Total})
	m.PrefixLookup(int(s.QueriedTokens-w.seen.QueriedTokens),
		int(s.MatchedTokens-w.seen.MatchedTokens))
	m.PrefixEvicted(int(s.Evicted - w.seen.Evicted))
	if w.leases != nil {
		c := w.leases()
		m.SetLeases(c.Granted, c.Writing, c.Sealed)
	}
	if w.lanes != nil {
		made, busy, held := w.lanes()
		m.SetLanes(made-busy-held, busy, held)
	}
	w.seen = s
}

// Token implements engine.Watch.
func (w *watch) Token(first bool, since time.Duration) {
	if w.meter != nil {
		w.meter.token(first, since)
	}
	if first {
		w.metrics.FirstToken(since)
	} else {
		w.metrics.BetweenTokens(since)
	}
}

// Finished implements engine.Watch.
func (w *watch) Finished(f engine.Finished) {
	m := w.metrics
	m.RequestFinished(metrics.End(f.Reason))
	m.PromptTokens(f.PromptTokens)
	m.OutputTokens(f.OutputTokens)
	served := f.OutputTokens
	if f.Kind != scheduler.PrepareReceive { // Its prompt is counted where it was computed.
		served += f.PromptTokens
	}
	m.TenantTokens(f.Tenant, served)
	p := metrics.Phases{Queue: f.Report.Queue, Prefill: -1, Decode: -1, Whole: f.Total,
		PerToken: -1}
	if f.FirstToken > 0 {
		p.Prefill, p.Decode = f.Report.Prefill, f.Decode
	}
	if f.OutputTokens > 1 {
		p.PerToken = f.Decode / time.Duration(f.OutputTokens-1)
	}
	m.RequestPhases(p)
}

// Transfer implements engine.Watch.
func (w *watch) Transfer(e transfer.Event) {
	direction, transport := metrics.Receive, string(e.Transport)
	if e.Direction == transfer.Sending {
		direction = metrics.Send
	}
	w.count(direction, e)
	switch e.Kind {
	case transfer.Done, transfer.Delivered:
		w.metrics.TransferBytes(direction, transport, e.Bytes)
		w.metrics.TransferDone(direction, transport, e.Elapsed)
		if e.Kind == transfer.Done {
			w.metrics.TransferHidden(e.Hidden, e.Exposed)
		}
	case transfer.Failed:
		w.metrics.TransferFailed(direction, metrics.TransferFailure(e.Err.Reason.Label()))
		if e.Bytes > 0 {
			w.metrics.TransferBytes(direction, transport, e.Bytes)
		}
	case transfer.Overtaken:
		w.metrics.TransferFailed(direction, metrics.FailOvertaken)
	case transfer.Expired:
		w.metrics.LeasesExpired(1)
	}
}

// count keeps the number of transfers that go on: those opened and not ended, however they end.
func (w *watch) count(direction metrics.Direction, e transfer.Event) {
	if w.open[direction] == nil {
		w.open[direction] = map[string]bool{}
	}
	open := w.open[direction]
	switch {
	case e.Kind == transfer.Opened && !open[e.ID]:
		open[e.ID] = true
		w.metrics.AddTransfers(direction, 1)
	case e.Kind != transfer.Opened && open[e.ID]:
		delete(open, e.ID)
		w.metrics.AddTransfers(direction, -1)
	}
}

// httpWatch turns what a server tells into series.
type httpWatch struct {
	metrics *metrics.Metrics
	meter   *meter
	router  bool // this instance is one
}

// Answered counts everywhere; only what asks for tokens is a request to the meter.
func (w httpWatch) Answered(route string, status int) {
	w.metrics.HTTPRequest(route, status)
	switch route {
	case "/v1/completions", "/v1/chat/completions", openai.PathRemoteSend,
		openai.PathStartGenerate:
		w.meter.answered(status)
	case "refused":
		w.meter.turnedAway(status)
	}
}

// Timed tells how the time to the first token was spent. On a router, which computes no tokens, it
// is also the only one who knows when they came.
func (w httpWatch) Timed(t api.Timed) {
	if t.Front && t.First {
		t.Timing.Each(w.metrics.FirstTokenPhase)
	}
	if !w.router {
		return
	}
	each := t.Took / time.Duration(max(1, t.Tokens))
	switch {
	case t.First:
		w.metrics.FirstToken(t.Took)
		w.meter.token(true, t.Took)
	default:
		for range t.Tokens {
			w.metrics.BetweenTokens(each)
			w.meter.token(false, each)
		}
	}
}

func (w httpWatch) Rejected(code string)   { w.metrics.RequestRejected(code) }
func (w httpWatch) Connections(change int) { w.metrics.AddHTTPConnections(change) }

// routerWatch turns what a router tells into series.
type routerWatch struct {
	metrics *metrics.Metrics
	ready   func() bool
}

func (w *routerWatch) Placed(decision string) { w.metrics.Placed(metrics.Decision(decision)) }
func (w *routerWatch) Retried(reason string)  { w.metrics.Retried(reason) }

func (w *routerWatch) Instances(all []placement.Instance) {
	for _, i := range all {
		w.metrics.SetInstance(metrics.Instance{Name: i.Name, Role: i.Role.String(), Up: i.Up,
			InFlight: i.InFlight})
	}
	w.metrics.SetReady(w.ready())
}
