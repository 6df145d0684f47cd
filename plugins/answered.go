package plugins

import "slices"

// Answered says of whom the latest answer of Decide is: NAME@VERSION, the capabilities that it was
// granted, and its descriptor's flags. Only the engine's goroutine calls it.
func (h *Host) Answered() (name string, granted uint64, flags uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.answered
	if s == nil {
		return "", 0, 0
	}
	return s.g.label, s.granted, s.g.about.Flags
}

// ReasonWords says what a reason number of a module means, which is named as Answered names it; ""
// where nobody has said so.
func (h *Host) ReasonWords(label string, reason uint16) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range slices.Backward(h.modules) {
		if g.label == label && g.spec.Reasons[reason] != "" {
			return g.spec.Reasons[reason]
		}
	}
	return ""
}
