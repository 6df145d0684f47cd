package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Direction is a transfer's, seen from this instance.
type Direction uint8

// The directions.
const (
	Send Direction = iota
	Receive
	directions
)

func (d Direction) String() string { return [directions]string{"send", "receive"}[d] }

// TransferFailure is why a transfer failed.
type TransferFailure string

// The failures.
const (
	FailTimeout      TransferFailure = "timeout"
	FailReset        TransferFailure = "reset"
	FailRefused      TransferFailure = "refused"
	FailDigest       TransferFailure = "digest"
	FailLease        TransferFailure = "lease"
	FailIncompatible TransferFailure = "incompatible"
	FailCancelled    TransferFailure = "cancelled"
	// FailOvertaken: a generation began here, and computes the prompt, before the transfer had
	// ended in any way.
	FailOvertaken TransferFailure = "overtaken"
)

// transfers are the series about handoffs.
type transfers struct {
	bytes    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	hidden   prometheus.Histogram
	inflight [directions]prometheus.Gauge
	failures *prometheus.CounterVec

	granted, writing, sealed prometheus.Gauge
	expired                  prometheus.Counter

	lanesFree, lanesBusy, lanesHeld prometheus.Gauge
}

func (t *transfers) register(k maker) {
	t.bytes = k.counters("engine_transfer_bytes_total", "Bytes of keys and values.",
		"direction", "transport")
	t.seconds = k.histograms("engine_transfer_seconds",
		"From the first byte to the acknowledgement.", transferBuckets(), "direction", "transport")
	t.hidden = k.histogram("engine_transfer_hidden_ratio",
		"Share of a sent transfer's time that passed while its prompt was computed.",
		ratioBuckets())
	inflight := k.gauges("engine_transfers_inflight", "Transfers going on.", "direction")
	t.failures = k.counters("engine_transfer_failures_total",
		"Transfers that failed; overtaken: this instance computed the prompt before they ended.",
		"direction", "reason")
	for d := range directions {
		t.inflight[d] = inflight.WithLabelValues(d.String())
		t.bytes.WithLabelValues(d.String(), "tcp")
		t.seconds.WithLabelValues(d.String(), "tcp")
		for _, f := range []TransferFailure{
			FailTimeout, FailReset, FailRefused, FailDigest, FailLease, FailIncompatible,
			FailCancelled, FailOvertaken,
		} {
			t.failures.WithLabelValues(d.String(), string(f))
		}
	}
	leases := k.gauges("engine_leases", "Reservations for KV to come.", "state")
	t.granted, t.writing = leases.WithLabelValues("granted"), leases.WithLabelValues("writing")
	t.sealed = leases.WithLabelValues("sealed")
	t.expired = k.counter("engine_leases_expired_total", "Reservations that ran out.")
	lanes := k.gauges("engine_transfer_lanes",
		"Memory lent to senders on this host; held: one that went may still write it.", "state")
	t.lanesFree, t.lanesBusy = lanes.WithLabelValues("free"), lanes.WithLabelValues("busy")
	t.lanesHeld = lanes.WithLabelValues("held")
}

// TransferBytes counts bytes; transport is tcp, unix, shm, pinned, ipc or peer.
func (m *Metrics) TransferBytes(d Direction, transport string, n int64) {
	m.bytes.WithLabelValues(d.String(), transport).Add(float64(n))
}

// TransferDone takes the time of a transfer that was acknowledged.
func (m *Metrics) TransferDone(d Direction, transport string, took time.Duration) {
	observe(m.seconds.WithLabelValues(d.String(), transport), took)
}

// TransferHidden takes how much of a sent transfer's time passed while its prompt was computed.
func (m *Metrics) TransferHidden(hidden, exposed time.Duration) {
	if all := hidden + exposed; all > 0 {
		m.hidden.Observe(hidden.Seconds() / all.Seconds())
	}
}

// AddTransfers counts a transfer that began (1) or ended (-1).
func (m *Metrics) AddTransfers(d Direction, n int) { m.inflight[d].Add(float64(n)) }

// TransferFailed counts a failure.
func (m *Metrics) TransferFailed(d Direction, why TransferFailure) {
	m.failures.WithLabelValues(d.String(), string(why)).Inc()
}

// SetLeases sets how many leases are granted but not written, being written, and sealed.
func (m *Metrics) SetLeases(granted, writing, sealed int) {
	m.granted.Set(float64(granted))
	m.writing.Set(float64(writing))
	m.sealed.Set(float64(sealed))
}

// SetLanes sets how much memory is lent: lanes that nobody has, that a connection has, and that
// wait for the end of what a sender began.
func (m *Metrics) SetLanes(free, busy, held int) {
	m.lanesFree.Set(float64(free))
	m.lanesBusy.Set(float64(busy))
	m.lanesHeld.Set(float64(held))
}

// LeasesExpired counts leases that ran out.
func (m *Metrics) LeasesExpired(n int) { m.expired.Add(float64(n)) }
