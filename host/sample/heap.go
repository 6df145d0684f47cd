package sample

// heapify orders h so that no element comes before its parent; the first of all stands at 0.
func heapify(h []candidate, before func(a, b candidate) bool) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, i, before)
	}
}

// sink moves h[i] down to where neither child comes before it.
func sink(h []candidate, i int, before func(a, b candidate) bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && before(h[child+1], h[child]) {
			child++
		}
		if !before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
