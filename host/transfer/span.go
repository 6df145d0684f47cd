package transfer

import "time"

// span is the time that a transfer spent on its frames, told apart by whether its prompt was still
// being computed.
type span struct {
	hidden time.Duration
	ended  time.Duration // when all was computed
	sealed bool
}

// computed says that nothing is left to compute.
func (s *span) computed(now time.Duration) {
	if !s.sealed {
		s.ended, s.sealed = now, true
	}
}

// spent adds the time of one frame on the connection.
func (s *span) spent(from, to time.Duration) {
	if s.sealed {
		to = min(to, s.ended)
	}
	s.hidden += max(0, to-from)
}

// shares is what was hidden and what was not, when the last acknowledgement came at now.
func (s *span) shares(now time.Duration) (hidden, exposed time.Duration) {
	if !s.sealed {
		return s.hidden, 0
	}
	return s.hidden, max(0, now-s.ended)
}
