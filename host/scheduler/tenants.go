package scheduler

import "github.com/kvrelay/engine/abi"

// plainWeight is the weight of a tenant that nobody gave one, in thousandths.
const plainWeight = 1000

// SetTenant sets what policies are told of a tenant: its weight in thousandths (0: one), and the
// most of its requests that may hold pages (0: no bound of its own), which the scheduler keeps too.
// Tenants up to the index come to be; one past the end of the table is its last.
func (s *Scheduler) SetTenant(index, weightMilli, maxSeqs uint32) {
	if weightMilli == 0 {
		weightMilli = plainWeight
	}
	t := &s.tenants[s.tenant(index)]
	t.WeightMilli, t.MaxSeqs = weightMilli, maxSeqs
}

// tenant makes room for a tenant and returns its place in the table.
func (s *Scheduler) tenant(index uint32) uint32 {
	index = min(index, abi.LimitTenants-1)
	for uint32(len(s.tenants)) <= index {
		s.tenants = append(s.tenants, abi.Tenant{
			Index: uint32(len(s.tenants)), WeightMilli: plainWeight,
		})
	}
	return index
}

// tenantFull reports whether a sequence's tenant holds as many as it may.
func (s *Scheduler) tenantFull(q *sequence) bool {
	t := &s.tenants[q.tenant]
	return t.MaxSeqs > 0 && t.Running >= t.MaxSeqs
}
