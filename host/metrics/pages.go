package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// pages are the series about KV memory and the prefix cache.
type pages struct {
	free, pinned, evictable, quarantine prometheus.Gauge
	capacity                            *prometheus.GaugeVec
	leaked                              prometheus.Gauge
	queried, matched, evicted           prometheus.Counter
}

func (p *pages) register(k maker) {
	in := k.gauges("engine_kv_pages", "Pages by owner.", "state")
	p.free, p.pinned = in.WithLabelValues("free"), in.WithLabelValues("pinned")
	p.evictable, p.quarantine = in.WithLabelValues("evictable"), in.WithLabelValues("quarantine")
	p.capacity = k.gauges("engine_kv_page_capacity", "Pages in all.", "page_size", "dtype")
	p.leaked = k.gauge("engine_kv_pages_leaked", "Pages that nobody owns. It must be 0.")
	p.queried = k.counter("engine_prefix_tokens_queried_total", "Prompt tokens looked up.")
	p.matched = k.counter("engine_prefix_tokens_matched_total", "Prompt tokens found.")
	p.evicted = k.counter("engine_prefix_evicted_pages_total", "Cached pages given up.")
}

// SetCapacity says how large the pool is. It is called once.
func (m *Metrics) SetCapacity(pages, pageSize int, dtype string) {
	size := strconv.Itoa(pageSize)
	m.capacity.WithLabelValues(size, dtype).Set(float64(pages))
	m.outside.cache.WithLabelValues(size, strconv.Itoa(pages)).Set(1)
}

// Pages count the pool's pages by owner. The owners sum to Capacity unless pages leak.
type Pages struct{ Free, Pinned, Evictable, Quarantine, Capacity int }

// SetPages sets the pages of each owner, and what leaked.
func (m *Metrics) SetPages(p Pages) {
	m.free.Set(float64(p.Free))
	m.pinned.Set(float64(p.Pinned))
	m.evictable.Set(float64(p.Evictable))
	m.quarantine.Set(float64(p.Quarantine))
	m.leaked.Set(float64(p.Capacity - p.Free - p.Pinned - p.Evictable - p.Quarantine))
	if p.Capacity > 0 {
		m.outside.usage.Set(float64(p.Pinned+p.Quarantine) / float64(p.Capacity))
	}
}

// PrefixLookup counts a lookup of so many prompt tokens, of which so many were found.
func (m *Metrics) PrefixLookup(queried, matched int) {
	m.queried.Add(float64(queried))
	m.matched.Add(float64(matched))
}

// PrefixEvicted counts pages that the prefix cache gave up.
func (m *Metrics) PrefixEvicted(pages int) { m.evicted.Add(float64(pages)) }
