// Package metrics holds the series that an instance exports, over the Prometheus client library.
// Their names, labels and buckets are an interface: dashboards and outside schedulers read them.
// Callers set typed values and never see the library.
//
// Every method may be called from any goroutine. Series whose labels are known from the start exist
// from the start, at zero.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options are the labels that every engine_* series carries.
type Options struct {
	Model, Role, Node string
	// Version, Commit, Go and ABI describe the build.
	Version, Commit, Go, ABI string
}

// roleRouter is the role of an instance that computes nothing.
const roleRouter = "router"

// Metrics are the series of one instance.
type Metrics struct {
	registry *prometheus.Registry
	ready    prometheus.Gauge
	stalled  prometheus.Gauge
	requests
	tenants
	steps
	pages
	transfers
	router
	policies
	outside
}

// New makes the series.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	common := prometheus.Labels{"model": o.Model, "role": o.Role, "node": o.Node}
	k := maker{prometheus.WrapRegistererWith(common, m.registry)}
	k.gauges("engine_build_info", "What this binary was built from.",
		"version", "commit", "go", "abi").WithLabelValues(o.Version, o.Commit, o.Go, o.ABI).Set(1)
	m.ready = k.gauge("engine_ready", "1 when requests are taken.")
	m.stalled = k.gauge("engine_progress_stalled", "1 when work waits and nothing runs.")
	// A router has no engine: its series would say 0 of what it does not know.
	engine, outside := k, maker{m.registry}
	if o.Role == roleRouter {
		engine = maker{prometheus.NewRegistry()} // Nobody reads it.
		outside = engine
	}
	m.outside.register(outside, o.Model)
	m.requests.register(k, engine)
	m.tenants.register(engine)
	m.steps.register(engine)
	m.pages.register(engine)
	m.transfers.register(engine)
	m.router.register(k)
	m.policies.register(engine)
	return m
}

// Handler serves the series in the formats that Prometheus negotiates.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// SetReady says whether requests are taken.
func (m *Metrics) SetReady(ready bool) { m.ready.Set(float(ready)) }

// SetStalled says whether work waits and nothing runs.
func (m *Metrics) SetStalled(stalled bool) { m.stalled.Set(float(stalled)) }

func float(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maker makes and registers series.
type maker struct{ to prometheus.Registerer }

func register[C prometheus.Collector](k maker, c C) C {
	k.to.MustRegister(c)
	return c
}

func (k maker) gauge(name, help string) prometheus.Gauge {
	return register(k, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (k maker) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(k, prometheus.NewGaugeVec(
		prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (k maker) counter(name, help string) prometheus.Counter {
	return register(k, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (k maker) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(k, prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (k maker) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(k, prometheus.NewHistogram(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

func (k maker) histograms(name, help string, buckets []float64, labels ...string,
) *prometheus.HistogramVec {
	return register(k, prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

func observe(h prometheus.Observer, d time.Duration) { h.Observe(d.Seconds()) }
