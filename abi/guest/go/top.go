package pol

import "slices"

// Ranked is a slot and its place.
type Ranked struct {
	Key  Key
	Slot uint32
}

// Top keeps the k first of any number of slots offered: for keys that depend on the time, or on
// each other. Clear it, offer all, then read Sorted.
type Top struct {
	heap []Ranked // The last in order at 0.
	k    int
}

// NewTop makes room for the k first.
func NewTop(k int) *Top { return &Top{heap: make([]Ranked, 0, k), k: k} }

// Clear forgets all that was offered.
func (t *Top) Clear() { t.heap = t.heap[:0] }

// Offer keeps a slot if it is among the first.
func (t *Top) Offer(key Key, slot uint32) {
	if len(t.heap) == t.k {
		if t.k > 0 && key.Compare(t.heap[0].Key) < 0 {
			t.sink(Ranked{key, slot})
		}
		return
	}
	t.heap = append(t.heap, Ranked{})
	at := len(t.heap) - 1
	for at > 0 && t.heap[(at-1)/2].Key.Compare(key) < 0 {
		t.heap[at] = t.heap[(at-1)/2]
		at = (at - 1) / 2
	}
	t.heap[at] = Ranked{key, slot}
}

// sink puts an entry in the first one's place and lets it sink.
func (t *Top) sink(entry Ranked) {
	at := 0
	for {
		child := 2*at + 1
		if child >= len(t.heap) {
			break
		}
		if child+1 < len(t.heap) && t.heap[child].Key.Compare(t.heap[child+1].Key) < 0 {
			child++
		}
		if entry.Key.Compare(t.heap[child].Key) >= 0 {
			break
		}
		t.heap[at] = t.heap[child]
		at = child
	}
	t.heap[at] = entry
}

// Sorted are the entries in order, until Clear.
func (t *Top) Sorted() []Ranked {
	slices.SortFunc(t.heap, func(a, b Ranked) int { return a.Key.Compare(b.Key) })
	return t.heap
}
