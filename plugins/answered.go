package plugins

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
