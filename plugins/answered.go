package plugins

import (
	"slices"
	"strings"
)

// Answered says of whom the latest answer of Decide is: NAME@VERSION, or two of them with a plus
// between where another module set the chunk lengths; the capabilities that the first was granted,
// and its descriptor's flags. Only the engine's goroutine calls it.
func (h *Host) Answered() (name string, granted uint64, flags uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.answered
	if s == nil {
		return "", 0, 0
	}
	if h.cutting {
		return h.deciding, s.granted, s.g.about.Flags
	}
	return s.g.label, s.granted, s.g.about.Flags
}

// ReasonWords says what a reason number means of whom Answered names so; "" where nobody has said
// it. The numbers are those of the module that selects.
func (h *Host) ReasonWords(label string, reason uint16) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range slices.Backward(h.modules) {
		named := g.label == label || strings.HasPrefix(label, g.label+"+")
		if words := g.spec.Reasons[reason]; named && words != "" {
			return words
		}
	}
	return ""
}
