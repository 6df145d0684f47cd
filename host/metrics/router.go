package metrics

import "github.com/prometheus/client_golang/prometheus"

// Decision is where a router lets a prompt be computed.
type Decision string

// The decisions.
const (
	DecisionLocal  Decision = "local"  // the decode instance prefills
	DecisionRemote Decision = "remote" // a prefill instance does
	DecisionSplit  Decision = "split"  // each a part
)

// router are the series of the router.
type router struct {
	decisions *prometheus.CounterVec
	retries   *prometheus.CounterVec
	up        *prometheus.GaugeVec
	inFlight  *prometheus.GaugeVec
}

func (r *router) register(k maker) {
	r.decisions = k.counters("engine_router_decisions_total", "Requests placed.", "decision")
	for _, d := range []Decision{DecisionLocal, DecisionRemote, DecisionSplit} {
		r.decisions.WithLabelValues(string(d))
	}
	r.retries = k.counters("engine_router_retries_total", "Requests tried elsewhere.", "reason")
	r.up = k.gauges("engine_router_instance_up", "1 when an instance is placed on.",
		"instance", "instance_role")
	r.inFlight = k.gauges("engine_router_instance_inflight", "Requests on an instance.",
		"instance", "instance_role")
}

// Placed counts a decision.
func (m *Metrics) Placed(d Decision) { m.decisions.WithLabelValues(string(d)).Inc() }

// Retried counts another try; reason is a code of the error table.
func (m *Metrics) Retried(reason string) { m.retries.WithLabelValues(reason).Inc() }

// Instance is what the router knows of one instance. Role is prefill or decode.
type Instance struct {
	Name, Role string
	Up         bool
	InFlight   int
}

// SetInstance sets an instance's series.
func (m *Metrics) SetInstance(i Instance) {
	m.up.WithLabelValues(i.Name, i.Role).Set(float(i.Up))
	m.router.inFlight.WithLabelValues(i.Name, i.Role).Set(float64(i.InFlight))
}

// ForgetInstance removes the series of an instance that left the list.
func (m *Metrics) ForgetInstance(name, role string) {
	m.up.DeleteLabelValues(name, role)
	m.router.inFlight.DeleteLabelValues(name, role)
}
