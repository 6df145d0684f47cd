package transfer

// shun is a way with a lane to one receiver.
type shun struct {
	receiver string // the name of its socket
	by       Transport
}

// backoff is how many transfers go without a way that failed before it is tried again.
type backoff struct{ left, last int }

// Limits of what is remembered of ways that failed.
const (
	mostShunned = 256
	mostBackoff = 64
)

// mayTry says whether a way may be tried, and counts.
func (s *Sender) mayTry(who shun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.shuns[who]
	if b == nil || b.left == 0 {
		return true
	}
	b.left--
	return false
}

// tried remembers how it went, and says whether it is the first failure in a row.
func (s *Sender) tried(who shun, ok bool) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		delete(s.shuns, who)
		return false
	}
	b := s.shuns[who]
	if b == nil {
		if len(s.shuns) >= mostShunned { // Receivers that are gone stay in it.
			clear(s.shuns)
		}
		b = &backoff{}
		s.shuns[who] = b
	}
	first = b.last == 0
	b.last = min(max(1, 2*b.last), mostBackoff)
	b.left = b.last
	return first
}

// note tells why a transfer's lane is not used any more: its layers go in data frames.
func (s *Sender) note(o *Outgoing, err error) {
	if s.options.Note != nil {
		s.options.Note(o.meta.Address, o.by, err)
	}
}
