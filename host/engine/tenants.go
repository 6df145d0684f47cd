package engine

import "time"

// maxTenants bounds the tenants that are told apart; all further ones share the last number.
const maxTenants = 1024

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

// deadline puts a wish in terms of the engine's clock; 0 stays 0.
func deadline(accepted, within time.Duration) time.Duration {
	if within <= 0 {
		return 0
	}
	return accepted + within
}
