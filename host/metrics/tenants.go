package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxTenants bounds the tenants with a series of their own: their names come from requests.
const maxTenants = 64

// tenants are the series about whose requests they were.
type tenants struct {
	tokens *prometheus.CounterVec
	names  names
}

// names are the values that one label has had so far. Whoever brings more than its bound has one
// series for the rest, "other".
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// bounded is the value that a name is counted under.
func (n *names) bounded(name string, most int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
		return name
	case len(n.known) >= most:
		return "other"
	case n.known == nil:
		n.known = map[string]bool{}
	}
	n.known[name] = true
	return name
}

func (t *tenants) register(k maker) {
	t.tokens = k.counters("engine_tenant_service_tokens_total",
		"Prompt and output tokens of the requests of each tenant.", "tenant")
}

// TenantTokens counts tokens that were served to a tenant; "" is the default one. Beyond 64 tenants
// further ones are "other".
func (m *Metrics) TenantTokens(tenant string, n int) {
	m.tokens.WithLabelValues(m.tenants.label(tenant)).Add(float64(n))
}

// label is the name that a tenant is counted under.
func (t *tenants) label(tenant string) string {
	if tenant == "" {
		tenant = "default"
	}
	return t.names.bounded(tenant, maxTenants)
}
