package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Slot is the place that a policy has: what engine_policy_info calls its state.
type Slot string

// The slots.
const (
	SlotActive   Slot = "active"
	SlotSelect   Slot = "select"
	SlotChunk    Slot = "chunk"
	SlotPrevious Slot = "previous"
	SlotFallback Slot = "fallback"
)

// Verdict is what became of a policy's decision.
type Verdict string

// The verdicts.
const (
	VerdictUsed    Verdict = "used"
	VerdictTrimmed Verdict = "trimmed"
	VerdictRefused Verdict = "refused"
)

// Bound is a protection against starvation that put a request first.
type Bound string

// The bounds.
const (
	BoundHardAge    Bound = "hard_age"
	BoundIdleSteps  Bound = "idle_steps"
	BoundEmptySteps Bound = "empty_steps"
)

// SwapResult is how an attempt to change the active policy ended.
type SwapResult string

// The results.
const (
	SwapActivated  SwapResult = "activated"
	SwapRefused    SwapResult = "refused"
	SwapRolledBack SwapResult = "rolled_back"
)

// policies are the series about policies. The label policy is NAME, without a version: a policy
// that is loaded anew goes on with its series. Beyond 64 policies further ones are "other".
type policies struct {
	info       *prometheus.GaugeVec
	decide     *prometheus.HistogramVec
	fuel       *prometheus.HistogramVec
	fuelLimit  *prometheus.GaugeVec
	breaker    *prometheus.GaugeVec
	recoveries *prometheus.CounterVec
	faults     *prometheus.CounterVec
	fallback   *prometheus.CounterVec
	verdicts   *prometheus.CounterVec
	starvation *prometheus.CounterVec
	swaps      *prometheus.CounterVec
	pause      prometheus.Histogram
	memory     *prometheus.GaugeVec
	generation *prometheus.GaugeVec
	dropped    *prometheus.CounterVec

	names names

	mu    sync.Mutex
	slots map[Slot]PolicyInfo // what engine_policy_info shows
}

// maxPolicies bounds the policies with series of their own, maxRefused those of them that nothing
// is known of but that they were refused: an operator's script may bring a new name every minute.
const (
	maxPolicies = 64
	maxRefused  = 16
)

// label is the name that a policy is counted under: "other" beyond the bound.
func (p *policies) label(policy string) string { return p.names.bounded(policy, maxPolicies) }

func (p *policies) register(k maker) {
	p.slots = map[Slot]PolicyInfo{}
	p.info = k.gauges("engine_policy_info", "Loaded policies.",
		"policy", "version", "digest", "abi", "state")
	p.decide = k.histograms("engine_policy_decide_seconds", "Time of one decision.",
		policyBuckets(), "policy")
	p.fuel = k.histograms("engine_policy_fuel", "Fuel that one decision used.", fuelBuckets(),
		"policy")
	p.breaker = k.gauges("engine_policy_breaker",
		"How far a policy is trusted: 0 closed, 1 half open, 2 open.", "policy")
	p.recoveries = k.counters("engine_policy_recoveries_total",
		"Ends of faults: the policy decides again, or is set aside.", "policy", "how")
	p.fuelLimit = k.gauges("engine_policy_fuel_limit", "Fuel that one decision may use.", "policy")
	p.faults = k.counters("engine_policy_faults_total", "Faults of policies.", "policy", "class")
	p.fallback = k.counters("engine_policy_fallback_steps_total",
		"Steps that the built-in policy decided instead.", "policy")
	p.verdicts = k.counters("engine_policy_decisions_total", "Decisions judged.",
		"policy", "result")
	p.starvation = k.counters("engine_policy_starvation_total",
		"Times that a request had to be put first.", "policy", "bound")
	p.swaps = k.counters("engine_policy_swaps_total", "Attempts to change the policy.", "result")
	for _, r := range []SwapResult{SwapActivated, SwapRefused, SwapRolledBack} {
		p.swaps.WithLabelValues(string(r))
	}
	p.pause = k.histogram("engine_policy_swap_pause_seconds",
		"Time that a change held up the loop.", policyBuckets())
	p.memory = k.gauges("engine_policy_memory_bytes", "Memory of a policy's sandbox.", "policy")
	p.generation = k.gauges("engine_policy_generation", "Changes of the policy so far.", "policy")
	p.dropped = k.counters("engine_policy_log_dropped_total", "Log lines beyond the limit.",
		"policy")
}

// PolicyInfo describes a loaded policy.
type PolicyInfo struct{ Policy, Version, Digest, ABI string }

func (i PolicyInfo) labels(s Slot) []string {
	return []string{i.Policy, i.Version, i.Digest, i.ABI, string(s)}
}

// SetPolicy says which policy is in a slot; the zero value empties it.
func (m *Metrics) SetPolicy(s Slot, i PolicyInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.slots[s]; ok {
		m.info.DeleteLabelValues(old.labels(s)...)
		delete(m.slots, s)
	}
	if i != (PolicyInfo{}) {
		m.slots[s] = i
		m.info.WithLabelValues(i.labels(s)...).Set(1)
	}
}

// PolicyCall takes one decision: its wall time, what it used, and what the sandbox holds and may
// use after it.
type PolicyCall struct {
	Policy      string
	Took        time.Duration
	Fuel        int64
	FuelLimit   int64
	MemoryBytes int64
}

// PolicyDecided counts a call of a policy.
func (m *Metrics) PolicyDecided(c PolicyCall) {
	c.Policy = m.policies.label(c.Policy)
	observe(m.policies.decide.WithLabelValues(c.Policy), c.Took)
	m.policies.fuel.WithLabelValues(c.Policy).Observe(float64(c.Fuel))
	m.fuelLimit.WithLabelValues(c.Policy).Set(float64(c.FuelLimit))
	m.memory.WithLabelValues(c.Policy).Set(float64(c.MemoryBytes))
}

// Breaker is how far a policy is trusted.
type Breaker int

// The stages, as engine_policy_breaker shows them.
const (
	BreakerClosed   Breaker = 0
	BreakerHalfOpen Breaker = 1
	BreakerOpen     Breaker = 2
)

// SetPolicyBreaker says how far a policy is trusted.
func (m *Metrics) SetPolicyBreaker(policy string, b Breaker) {
	m.breaker.WithLabelValues(m.policies.label(policy)).Set(float64(b))
}

// PolicyRecovery counts how a fault ended: recovered or bypassed.
func (m *Metrics) PolicyRecovery(policy, how string) {
	m.recoveries.WithLabelValues(m.policies.label(policy), how).Inc()
}

// PolicyFault counts a fault; class is one of the policy contract's fault classes.
func (m *Metrics) PolicyFault(policy, class string) {
	most := maxPolicies
	if strings.HasPrefix(class, "load_") {
		most = maxRefused
	}
	m.faults.WithLabelValues(m.policies.names.bounded(policy, most), class).Inc()
}

// PolicyFallback counts a step that the built-in policy decided in another's place.
func (m *Metrics) PolicyFallback(policy string) {
	m.fallback.WithLabelValues(m.policies.label(policy)).Inc()
}

// PolicyDecisions counts decisions of one step by what became of them.
func (m *Metrics) PolicyDecisions(policy string, v Verdict, n int) {
	if n > 0 {
		m.verdicts.WithLabelValues(m.policies.label(policy), string(v)).Add(float64(n))
	}
}

// PolicyStarved counts a request that a bound put first.
func (m *Metrics) PolicyStarved(policy string, b Bound) {
	m.starvation.WithLabelValues(m.policies.label(policy), string(b)).Inc()
}

// PolicySwap counts an attempt to change the active policy; pause is what it held up the loop, 0 if
// it was refused. generation is the number of the generation that is active now.
func (m *Metrics) PolicySwap(policy string, r SwapResult, pause time.Duration, generation uint64) {
	m.swaps.WithLabelValues(string(r)).Inc()
	if r != SwapRefused {
		observe(m.pause, pause)
		m.generation.Reset()
		m.generation.WithLabelValues(policy).Set(float64(generation))
	}
}

// PolicyLogDropped counts log lines beyond the limit.
func (m *Metrics) PolicyLogDropped(policy string, lines int) {
	m.dropped.WithLabelValues(m.policies.label(policy)).Add(float64(lines))
}
