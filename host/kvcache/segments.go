package kvcache

// AppendSegments appends the run-length form [nseg, pos, len, ...] of the slots of positions
// [start, end): pos = page*pageSize + offset, and runs that touch are merged, also across pages. An
// empty run is [0]. The table holds one page for each pageSize positions, from position 0; where it
// holds None the run's pos is -1.
func AppendSegments(dst []int, table []PageID, pageSize, start, end int) []int {
	count := len(dst)
	dst = append(dst, 0)
	for at := start; at < end; {
		first := at % pageSize
		n := min(pageSize-first, end-at)
		flat, next := -1, -1 // Where this run starts, and where the one before would go on.
		if page := table[at/pageSize]; page != None {
			flat = int(page)*pageSize + first
		}
		at += n
		last := len(dst) - 2
		if dst[count] > 0 && dst[last] >= 0 {
			next = dst[last] + dst[last+1]
		}
		if dst[count] > 0 && next == flat {
			dst[last+1] += n
			continue
		}
		dst = append(dst, flat, n)
		dst[count]++
	}
	return dst
}

// AppendSlots appends the slot ranges of positions [start, end), one for each page.
func AppendSlots(dst []SlotRange, table []PageID, pageSize, start, end int) []SlotRange {
	for at := start; at < end; {
		first := at % pageSize
		n := min(pageSize-first, end-at)
		dst = append(dst, SlotRange{Page: table[at/pageSize], First: first, Count: n})
		at += n
	}
	return dst
}
