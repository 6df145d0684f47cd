package pol

// Counters keeps how much service each tenant had, by its weight: the one with the least is next. A
// tenant that comes back after a rest starts no lower than the least of those that are there: rest
// is not saved up. Tenants beyond the number made room for share the last counter.
type Counters struct {
	service []int64 // Thousandths of a token at weight 1.
	here    []bool
}

// NewCounters makes room for that many tenants.
func NewCounters(tenants int) *Counters {
	n := max(tenants, 1)
	return &Counters{service: make([]int64, n), here: make([]bool, n)}
}

func (c *Counters) at(tenant uint32) int {
	return int(min(uint64(tenant), uint64(len(c.service)-1)))
}

// Of is the tenant's service so far.
func (c *Counters) Of(tenant uint32) int64 { return c.service[c.at(tenant)] }

// Enter says that the tenant has requests.
func (c *Counters) Enter(tenant uint32) {
	at := c.at(tenant)
	if c.here[at] {
		return
	}
	least, some := int64(0), false
	for i, here := range c.here {
		if here && (!some || c.service[i] < least) {
			least, some = c.service[i], true
		}
	}
	if some {
		c.service[at] = max(c.service[at], least)
	}
	c.here[at] = true
}

// Leave says that the tenant has no requests any more.
func (c *Counters) Leave(tenant uint32) { c.here[c.at(tenant)] = false }

// Charge says that tokens were computed for the tenant; its weight is in thousandths, 0 means 1000.
func (c *Counters) Charge(tenant, tokens, weightMilli uint32) {
	c.service[c.at(tenant)] += service(tokens, weightMilli)
}

// Refund takes back what was charged at the same weight and not computed.
func (c *Counters) Refund(tenant, tokens, weightMilli uint32) {
	c.service[c.at(tenant)] -= service(tokens, weightMilli)
}

func service(tokens, weightMilli uint32) int64 {
	if weightMilli == 0 {
		weightMilli = 1000
	}
	return int64(tokens) * 1_000_000 / int64(weightMilli)
}
