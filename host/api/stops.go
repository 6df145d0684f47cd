package api

import "strings"

// stopper looks for stop strings in a text that arrives in pieces. It holds back what could be the
// beginning of one, so that nothing behind the start of a stop string is ever shown.
type stopper struct {
	stops []string
	held  string
}

// push adds a piece and returns what may be shown; found reports that a stop string was seen, which
// with all that follows is not shown.
func (s *stopper) push(piece string) (shown string, found bool) {
	if len(s.stops) == 0 {
		return piece, false
	}
	text := s.held + piece
	first := -1
	for _, stop := range s.stops {
		if i := strings.Index(text, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		s.held = ""
		return text[:first], true
	}
	hold := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > hold; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				hold = n
			}
		}
	}
	s.held = text[len(text)-hold:]
	return text[:len(text)-hold], false
}

// flush returns what was held back: the text has ended and it was no stop string.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
