package placement

import "slices"

// Ticket is one request's hold on the instances it was given: each counts it as in flight until it
// is released. The zero value holds nothing and excludes nothing.
type Ticket struct {
	held     [roles]*instance
	pending  [roles]int
	excluded [roles][]*instance
}

// Place gives the ticket a decode instance and, when one is left, a prefill instance; without one
// the decode instance has to prefill itself. It lets go of what the ticket held before. To retry
// elsewhere, Exclude the instance at fault and call it again.
//
// It fails with ErrNoDecode or ErrTried, and then the ticket holds nothing.
func (p *Pool) Place(t *Ticket) error {
	if err := p.PlaceDecode(t); err != nil {
		return err
	}
	p.PlacePrefill(t)
	return nil
}

// PlaceDecode is Place without a prefill instance: for a prompt that is not worth sending.
func (p *Pool) PlaceDecode(t *Ticket) error {
	t.Release(Prefill)
	t.Release(Decode)
	decode := least(p.lists[Decode], t.excluded[Decode])
	if decode == nil {
		if p.Ready() {
			return ErrTried
		}
		return ErrNoDecode
	}
	t.take(Decode, decode)
	return nil
}

// PlacePrefill gives the ticket another prefill instance and leaves its decode instance alone. It
// reports whether one was left.
func (p *Pool) PlacePrefill(t *Ticket) bool {
	t.Release(Prefill)
	t.take(Prefill, least(p.lists[Prefill], t.excluded[Prefill]))
	return t.held[Prefill] != nil
}

// least returns the least loaded instance that is usable and not excluded, the first of equals, or
// nil. Suspects come after all others.
func least(list, excluded []*instance) *instance {
	var best *instance
	for _, i := range list {
		if i.usable() && !slices.Contains(excluded, i) && (best == nil || i.before(best)) {
			best = i
		}
	}
	return best
}

// before reports whether i is to be preferred to one that stands before it in the list.
func (i *instance) before(other *instance) bool {
	if i.suspect != other.suspect {
		return other.suspect
	}
	return i.load() < other.load()
}

func (t *Ticket) take(role Role, i *instance) {
	if i != nil {
		i.inFlight++
		t.held[role] = i
	}
}

// Instance names the instance that the ticket holds; "" when it holds none of the role.
func (t *Ticket) Instance(role Role) string {
	if t.held[role] == nil {
		return ""
	}
	return t.held[role].name
}

// Compute notes how many tokens of the prompt the instance of a role still has to compute for the
// ticket; 0 when it is through. Releasing the instance ends it too.
func (t *Ticket) Compute(role Role, tokens int) {
	if i := t.held[role]; i != nil {
		i.pending += tokens - t.pending[role]
		t.pending[role] = tokens
	}
}

// Release lets go of the instance of a role: the prefill instance when the KV is delivered, the
// decode instance when the request has ended, however it ended. Releasing twice is harmless.
func (t *Ticket) Release(role Role) {
	if i := t.held[role]; i != nil {
		t.Compute(role, 0)
		i.inFlight--
		t.held[role] = nil
	}
}

// Exclude releases the instance of a role because the request failed there: this ticket does not
// get it again until it is forgiven.
func (t *Ticket) Exclude(role Role) {
	if i := t.held[role]; i != nil {
		t.excluded[role] = append(t.excluded[role], i)
		t.Release(role)
	}
}

// Forgive lets the ticket have every instance again.
func (t *Ticket) Forgive() { t.excluded = [roles][]*instance{} }
