package engine

import (
	"context"
	"time"

	"github.com/kvrelay/engine/host/scheduler"
)

// maxTenants bounds the tenants that are told apart; all further ones share the last number.
const maxTenants = 1024

// Tenant is what an operator gives a tenant.
type Tenant struct {
	Name string
	// WeightMilli is its share against others', in thousandths; 0 is 1000.
	WeightMilli uint32
	// MaxSeqs is how many of its requests may hold pages at once; 0 is no bound of its own.
	MaxSeqs uint32
}

// Class is what an operator wants for the requests of a service class; 0 is nothing.
type Class struct {
	// Deadline is when the first token is wanted, from arrival, where the request does not say.
	Deadline time.Duration
	// TokenGap is the longest wanted time between two tokens of a stream.
	TokenGap time.Duration
}

// Shares are what tenants and classes get.
type Shares struct {
	Tenants []Tenant
	Classes map[uint8]Class
}

// tenants numbers the tenants in the order they came. 0 is the default one, without a name.
type tenants struct{ numbers map[string]uint32 }

func newTenants() tenants { return tenants{map[string]uint32{"": 0, "default": 0}} }

// index returns the tenant's number, which stays the same while the engine runs.
func (t *tenants) index(name string) uint32 {
	n, known := t.numbers[name]
	if known {
		return n
	}
	next := uint32(len(t.numbers) - 1) // Two names share number 0.
	if next >= maxTenants {
		return maxTenants
	}
	t.numbers[name] = next
	return next
}

// share gives tenants and classes what the operator wants from now on. Tenants that are not named
// get what one gets that nobody names.
func (e *Engine) share(s Shares) {
	for _, n := range e.tenants.numbers {
		e.scheduler.SetTenant(n, 0, 0)
	}
	for _, t := range s.Tenants {
		e.scheduler.SetTenant(e.tenants.index(t.Name), t.WeightMilli, t.MaxSeqs)
	}
	e.classes = s.Classes
}

// SetShares changes what tenants and classes get between two steps. Requests that are there keep
// the deadline that they came with.
func (e *Engine) SetShares(ctx context.Context, s Shares) error {
	_, err := call(ctx, e, func() (struct{}, error) {
		e.share(s)
		return struct{}{}, nil
	})
	return err
}

// wishes fills in what policies are told of a request.
func (e *Engine) wishes(r *request, to *scheduler.Request) {
	h := r.ask.Hints
	class := e.classes[h.Class]
	to.Arrival, to.Priority, to.Class, to.Group = r.accepted, h.Priority, h.Class, h.Group
	to.PredictedOutput, to.UserTag = h.PredictedOutput, h.Tag
	to.Tenant, to.TokenGap = e.tenants.index(h.Tenant), class.TokenGap
	if h.Deadline == 0 {
		h.Deadline = class.Deadline
	}
	to.Deadline = deadline(r.accepted, h.Deadline)
}

// deadline puts a wish in terms of the engine's clock; 0 stays 0.
func deadline(accepted, within time.Duration) time.Duration {
	if within <= 0 {
		return 0
	}
	return accepted + within
}
