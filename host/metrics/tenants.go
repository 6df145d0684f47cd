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

	namesMu sync.Mutex
	names   map[string]bool
}

func (t *tenants) register(k maker) {
	t.names = map[string]bool{}
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
	t.namesMu.Lock()
	defer t.namesMu.Unlock()
	if !t.names[tenant] {
		if len(t.names) >= maxTenants {
			return "other"
		}
		t.names[tenant] = true
	}
	return tenant
}
