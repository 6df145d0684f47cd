package main

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/metrics"
	"github.com/kvrelay/engine/plugins"
)

// observer turns what a policy host tells into series, and keeps the sums that `engine run` prints.
type observer struct {
	metrics *metrics.Metrics // nil: only the sums
	log     *slog.Logger
	active  atomic.Pointer[string]
	calls   atomic.Int64
	wall    atomic.Int64 // nanoseconds
}

// policyOf is the name without the version, which is the label of the series.
func policyOf(name string) string {
	name, _, _ = strings.Cut(name, "@")
	return name
}

// name is the active policy, NAME or NAME@VERSION; what the binary ships has no version of its own.
func (o *observer) name() string {
	if name := o.active.Load(); name != nil {
		return *name
	}
	return "native:fcfs"
}

// Stepped implements plugins.Observer.
func (o *observer) Stepped(c plugins.Call) {
	if c.Wall > 0 {
		o.calls.Add(1)
		o.wall.Add(int64(c.Wall))
	}
	if o.metrics == nil || c.Policy == "" {
		return
	}
	policy := policyOf(c.Policy)
	if c.Wall > 0 {
		o.metrics.PolicyDecided(metrics.PolicyCall{Policy: policy, Took: c.Wall, Fuel: c.Fuel,
			FuelLimit: c.FuelMax, MemoryBytes: c.Memory})
	}
	o.metrics.SetPolicyBreaker(policy, breakerOf(c.Breaker))
	if c.Recovery != "" {
		o.metrics.PolicyRecovery(policy, string(c.Recovery))
	}
	if c.Cuts && c.Fallback { // Of the module that selects, the scheduler tells.
		o.metrics.PolicyFallback(policy)
	}
}

func breakerOf(s plugins.Stage) metrics.Breaker {
	switch s {
	case plugins.Open:
		return metrics.BreakerOpen
	case plugins.HalfOpen:
		return metrics.BreakerHalfOpen
	}
	return metrics.BreakerClosed
}

// Faulted implements plugins.Observer.
func (o *observer) Faulted(f *plugins.Fault) {
	if o.metrics != nil {
		o.metrics.PolicyFault(policyOf(f.Policy), string(f.Class))
	}
}

// Swapped implements plugins.Observer.
func (o *observer) Swapped(s plugins.Swap) {
	if s.Result != plugins.Refused {
		name := shownArrangement(s.To)
		o.active.Store(&name)
	}
	if o.metrics != nil {
		o.metrics.PolicySwap(policyOf(s.To), metrics.SwapResult(s.Result), s.Pause, s.Number)
	}
}

// shownArrangement is what decides, as people are told: NAME@VERSION, or two of them with a plus
// between; what the binary ships has no version of its own.
func shownArrangement(label string) string {
	parts := strings.Split(label, "+")
	for i, name := range parts {
		if strings.HasPrefix(name, "builtin:") {
			parts[i] = policyOf(name)
		}
	}
	return strings.Join(parts, "+")
}

// LogDropped implements plugins.Observer.
func (o *observer) LogDropped(policy string, lines int) {
	if o.metrics != nil {
		o.metrics.PolicyLogDropped(policyOf(policy), lines)
	}
}

// spent is the sum over all decisions so far.
func (o *observer) spent() (calls int64, wall time.Duration) {
	return o.calls.Load(), time.Duration(o.wall.Load())
}
