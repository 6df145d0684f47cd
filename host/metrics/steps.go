package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stage is a part of a step.
type Stage uint8

// The stages of a step, in order.
const (
	Hear Stage = iota
	Plan
	Run
	Commit
	Deliver
	stages
)

// Cause is why a sequence was preempted.
type Cause uint8

// The causes.
const (
	CauseMemory Cause = iota
	CausePolicy
	causes
)

// steps are the series about the loop.
type steps struct {
	stage       [stages]prometheus.Observer
	prefillRows prometheus.Observer
	decodeRows  prometheus.Observer
	preempted   [causes]prometheus.Counter
}

func (s *steps) register(k maker) {
	seconds := k.histograms("engine_step_seconds", "Time of a step's stages.",
		stepBuckets(), "stage")
	for i, name := range [stages]string{"hear", "plan", "run", "commit", "deliver"} {
		s.stage[i] = seconds.WithLabelValues(name)
	}
	rows := k.histograms("engine_step_tokens", "Tokens computed in a step.",
		stepTokenBuckets(), "kind")
	s.prefillRows, s.decodeRows = rows.WithLabelValues("prefill"), rows.WithLabelValues("decode")
	preempted := k.counters("engine_preemptions_total", "Sequences preempted.", "reason")
	for i, name := range [causes]string{"memory", "policy"} {
		s.preempted[i] = preempted.WithLabelValues(name)
	}
}

// StepStage takes the time of one stage of one step. It allocates nothing.
func (m *Metrics) StepStage(s Stage, d time.Duration) { observe(m.stage[s], d) }

// StepTokens takes the tokens computed in one step; a kind without tokens is not counted.
func (m *Metrics) StepTokens(prefill, decode int) {
	if prefill > 0 {
		m.prefillRows.Observe(float64(prefill))
	}
	if decode > 0 {
		m.decodeRows.Observe(float64(decode))
	}
}

// Preempted counts a preemption.
func (m *Metrics) Preempted(c Cause) { m.preempted[c].Inc() }
