package main

import (
	"slices"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/admin"
)

// meterSeconds is the time over which rates are averaged.
const meterSeconds = 10

// meterSamples is how many of the latest latencies quantiles are taken of.
const meterSamples = 512

// meter keeps what people watch: rates over the latest seconds and quantiles of the latest
// latencies. Histograms of the metrics reach back to the start and cannot say that.
type meter struct {
	now func() time.Time

	mu       sync.Mutex
	started  time.Time
	seconds  [meterSeconds + 1]tally // by second, modulo; the current one is not complete
	first    ring
	between  ring
	failures int
	refused  int
}

// tally is what one second brought.
type tally struct {
	second          int64
	finished, steps int
	prefill, decode int
	busy            time.Duration
}

// ring holds the latest durations.
type ring struct {
	list []time.Duration
	next int
}

func (r *ring) add(d time.Duration) {
	if len(r.list) < meterSamples {
		r.list = append(r.list, d)
		return
	}
	r.list[r.next] = d
	r.next = (r.next + 1) % meterSamples
}

// quantiles are the median and the 99th percentile, in milliseconds.
func (r *ring) quantiles() (p50, p99 float64) {
	if len(r.list) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(r.list))
	at := func(p int) float64 {
		return float64(sorted[(len(sorted)-1)*p/100].Microseconds()) / 1000
	}
	return at(50), at(99)
}

func newMeter(now func() time.Time) *meter { return &meter{now: now, started: now()} }

// second is the tally of now; the lock is held.
func (m *meter) second() *tally {
	at := m.now().Unix()
	t := &m.seconds[at%int64(len(m.seconds))]
	if t.second != at {
		*t = tally{second: at}
	}
	return t
}

// step counts one step of the engine.
func (m *meter) step(prefill, decode int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.second()
	t.steps++
	t.prefill += prefill
	t.decode += decode
	t.busy += took
}

// token takes a latency: to the first token, or between two.
func (m *meter) token(first bool, since time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first {
		m.first.add(since)
	} else {
		m.between.add(since)
	}
}

// answered counts a request that ended by its status.
func (m *meter) answered(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.second().finished++
	m.count(status)
}

// turnedAway counts a request that was not let in.
func (m *meter) turnedAway(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(status)
}

func (m *meter) count(status int) {
	const tooMany, serverError = 429, 500
	switch {
	case status == tooMany:
		m.refused++
	case status >= serverError:
		m.failures++
	}
}

// read fills in what the meter knows.
func (m *meter) read(to *admin.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	to.Uptime = now.Sub(m.started).Seconds()
	var sum tally
	for _, t := range m.seconds {
		if age := now.Unix() - t.second; age >= 1 && age <= meterSeconds {
			sum.finished += t.finished
			sum.steps += t.steps
			sum.prefill += t.prefill
			sum.decode += t.decode
			sum.busy += t.busy
		}
	}
	span := min(meterSeconds, max(1, to.Uptime))
	to.RequestsPerSecond = float64(sum.finished) / span
	to.PrefillPerSecond = float64(sum.prefill) / span
	to.DecodePerSecond = float64(sum.decode) / span
	if sum.steps > 0 {
		to.BatchTokens = float64(sum.prefill+sum.decode) / float64(sum.steps)
		to.StepMilliseconds = float64(sum.busy.Microseconds()) / 1000 / float64(sum.steps)
	}
	to.Errors, to.Refused = m.failures, m.refused
	to.Latency.TTFT50, to.Latency.TTFT99 = m.first.quantiles()
	to.Latency.ITL50, to.Latency.ITL99 = m.between.quantiles()
}
