package kvcache

// AppendSegments appends the run-length form [nseg, pos, len, ...] of the slots of positions
// [start, end): pos = page*pageSize + offset, and runs that touch are merged, also across pages. An
// empty run is [0]. The table holds one page for each pageSize positions, from position 0.
func AppendSegments(dst []int, table []PageID, pageSize, start, end int) []int {
	count := len(dst)
	dst = append(dst, 0)
	for at := start; at < end; {
		first := at % pageSize
		n := min(pageSize-first, end-at)
		flat := int(table[at/pageSize])*pageSize + first
		at += n
		if last := len(dst) - 2; dst[count] > 0 && dst[last]+dst[last+1] == flat {
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
