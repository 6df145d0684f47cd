package tokenizer

// A queue of merges is a binary heap of plain numbers, the smallest on top: container/heap
// would call through an interface for each comparison.

func heapify(h []uint64) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
}

func sink(h []uint64, i int) {
	v := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if v <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = v
}

func push(queue *[]uint64, v uint64) {
	h := append(*queue, v)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= v {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = v
	*queue = h
}

func pop(queue *[]uint64) uint64 {
	h := *queue
	top, last := h[0], len(h)-1
	h[0] = h[last]
	*queue = h[:last]
	if last > 0 {
		sink(h[:last], 0)
	}
	return top
}
