package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// block is one tile of lines on one block of positions.
type block struct {
	job         *attentionJob
	task        *attentionTask
	scratch     *scratch
	start       int        // first position of the block
	panels      []keyPanel // the keys that some line of the task goes through
	stretches   []stretch  // the values of the block, where every line of the task goes through all
	line, lines int
}

// plain says whether the mask of a block is the causal one alone, for queries up to position last.
func plain(a *gpu.AttentionArgs, last, start int) bool {
	return a.Window == 0 || start+attentionBlock <= a.Sinks ||
		start >= a.Sinks && start > last-a.Window
}

func (b *block) do() {
	if b.stretches != nil && b.job.args.Cap == 0 {
		b.scores(0, attentionBlock)
		b.softmax(0, b.lines)
		b.values(span{0, b.lines}, span{0, attentionBlock}, stairs{})
		return
	}
	step := b.task.step
	position := b.task.position + b.line*step
	last := position + (b.lines-1)*step
	if !plain(&b.job.args, last, b.start) {
		b.masked()
		return
	}
	seen := position + 1 - b.start // columns that the first line sees; the next ones see step more
	common, to := min(attentionBlock, max(0, seen)), min(attentionBlock, last+1-b.start)
	if to <= 0 {
		return
	}
	blind := max(0, 1-seen) // lines that see nothing
	b.scores(0, to)
	for i := blind; i < b.lines; i++ {
		b.hide(i, span{0, min(attentionBlock, seen+i*step)})
	}
	b.softmax(blind, b.lines)
	if s := (stairs{max(1, 1-seen), to - common}); s.steps == 0 || b.climbs() {
		b.values(span{0, b.lines}, span{0, common}, s)
		return
	}
	b.values(span{0, b.lines}, span{0, common}, stairs{})
	for i := blind; i < b.lines; i++ {
		b.values(span{i, i + 1}, span{common, min(attentionBlock, seen+i)}, stairs{})
	}
}

// masked is do where a window hides some keys of the block from some lines.
func (b *block) masked() {
	var sees [tileRows]span
	seen := span{attentionBlock, 0}   // by some line
	common := span{0, attentionBlock} // by every line
	for i := range b.lines {
		low, high := visible(&b.job.args, b.task.position+(b.line+i)*b.task.step, b.start)
		sees[i] = span{low, high}
		common = span{max(common.first, low), min(common.last, high)}
		if low < high {
			seen = span{min(seen.first, low), max(seen.last, high)}
		}
	}
	if seen.first >= seen.last {
		return
	}
	b.scores(seen.first, seen.last)
	for i := 0; i < b.lines; {
		first := i
		for ; i < b.lines && sees[i].first < sees[i].last; i++ {
			b.hide(i, sees[i])
		}
		if i > first {
			b.softmax(first, i)
		} else {
			i++
		}
	}
	if b.beside(sees[:b.lines]) {
		return
	}
	if common.first >= common.last {
		common = span{attentionBlock, attentionBlock}
	}
	one := func(i, from, to int) { b.values(span{i, i + 1}, span{from, to}, stairs{}) }
	for i, s := range sees[:b.lines] {
		one(i, s.first, min(common.first, s.last))
	}
	b.values(span{0, b.lines}, common, stairs{})
	for i, s := range sees[:b.lines] {
		one(i, common.last, s.last)
	}
}

// beside adds the values of a block that begins with sinks, line by line: those of the sinks, then
// those of the window. What lies between is hidden and may have lost its page. It reports whether
// this is such a block.
func (b *block) beside(sees []span) bool {
	a := &b.job.args
	if a.Window == 0 || b.start >= a.Sinks {
		return false
	}
	sinks := a.Sinks - b.start
	for i, s := range sees {
		position := b.task.position + (b.line+i)*b.task.step
		low := max(sinks, position-a.Window+1-b.start)
		b.values(span{i, i + 1}, span{0, min(sinks, s.last)}, stairs{})
		b.values(span{i, i + 1}, span{low, s.last}, stairs{})
	}
	return true
}

// scores computes q·k for columns [from, to), and for a few more that softmax hides. Panels go in
// ascending order, so that each overwrites what the one before it computed beyond its page.
func (b *block) scores(from, to int) {
	j, dim := b.job, b.job.args.HeadDim
	dtype, size := j.kv.seen()
	call := &b.scratch.call
	*call = tile{
		k: dim, a: address(b.scratch.queries, b.line*dim), lda: uintptr(dim) * 4,
		ldb: uintptr(keyLanes * size), ldc: scoreStride * 4,
		init: unsafe.Pointer(&j.d.zeros),
	}
	one, pair := j.d.micro.near(dtype, b.lines)
	panels := b.panels
	for len(panels) > 0 && panels[0].after <= b.start+from {
		panels = panels[1:]
	}
	for len(panels) > 0 && panels[0].first < b.start+to {
		p := &panels[0]
		call.b = p.address
		call.c = unsafe.Pointer(&b.scratch.scores[keyLanes+p.first-b.start])
		if pair != nil && len(panels) > 1 && panels[1].first == p.first+keyLanes &&
			panels[1].first < b.start+to {
			call.panel = uintptr(panels[1].address) - uintptr(p.address)
			pair(call)
			panels = panels[2:]
			continue
		}
		one(call)
		panels = panels[1:]
	}
}

// softmax folds the block into the states of lines [first, last), and brings their outputs so far
// to their new scale.
func (b *block) softmax(first, last int) {
	s, padded, line := b.scratch, b.job.kv.padded, b.line+first
	c := &s.softmax
	c.scores = (*[attentionBlock]float32)(s.scores[first*scoreStride+keyLanes:])
	c.lines, c.scale = last-first, scaleBehindCap(&b.job.args)
	c.top, c.total = &s.tops[line], &s.totals[line]
	c.output, c.width = &s.output[line*padded], padded
	b.job.d.micro.softmax(c)
}

// hide bounds the scores of line i and hides those of what it does not see.
func (b *block) hide(i int, sees span) {
	a := &b.job.args
	if sees == (span{0, attentionBlock}) && a.Cap == 0 && a.Window == 0 {
		return
	}
	scores := (*[attentionBlock]float32)(b.scratch.scores[i*scoreStride+keyLanes:])
	if a.Cap > 0 {
		for column := sees.first; column < sees.last; column++ {
			scores[column] = capped(scores[column], a)
		}
	}
	copy(scores[:sees.first], b.job.below[:])
	copy(scores[sees.last:], b.job.below[:])
	if position := b.task.position + (b.line+i)*b.task.step; a.Window > 0 {
		for column := sees.first; column < sees.last; column++ {
			if hidden(a, position, b.start+column) {
				scores[column] = b.job.below[0]
			}
		}
	}
}

// stairs are columns behind those that all lines of a tile see: the first of them is seen from line
// first on, each one after it from one line further down.
type stairs struct{ first, steps int }

// climbs says whether there are kernels for stairs, on tiles like this one.
func (b *block) climbs() bool {
	dtype, _ := b.job.kv.seen()
	return b.job.d.micro.climbing[dtype] != nil && b.lines == b.job.d.micro.tall
}

// values adds the weighted values of some columns, and of the stairs behind them, to the outputs of
// some lines of the tile.
func (b *block) values(lines, columns span, up stairs) {
	if columns.first >= columns.last && up.steps == 0 {
		return
	}
	s, kv, micro, rows := b.scratch, b.job.kv, b.job.d.micro, lines.last-lines.first
	dtype, size := kv.seen()
	row, stretches := uintptr(kv.padded)*4, b.stretches
	if stretches == nil {
		stretches = b.findValues(columns.first, columns.last)
	}
	call := &s.call
	*call = tile{
		a:   address(s.scores[:], lines.first*scoreStride+keyLanes+columns.first),
		lda: scoreStride * 4, ldb: uintptr(kv.padded * size), panel: uintptr(panelRows * size),
		c: address(s.output, (b.line+lines.first)*kv.padded), ldc: row, ldi: row,
		first: up.first, steps: up.steps,
	}
	if up.steps > 0 {
		b.findSteps(columns.last, up.steps)
		call.stairs = &s.stairs
	}
	one, pair := micro.near(dtype, rows)
	for d := 0; d < kv.padded; {
		kernel, width := one, panelRows
		switch {
		case rows == 1 && d+widePanels*panelRows <= kv.padded:
			kernel, width = micro.wide[dtype], widePanels*panelRows
		case pair != nil && d+pairPanels*panelRows <= kv.padded:
			kernel, width = pair, pairPanels*panelRows
		}
		call.shift = uintptr(d * size)
		call.b, call.k = unsafe.Add(stretches[0].b, call.shift), stretches[0].k
		call.rest, call.next = len(stretches)-1, &s.stretches[1]
		call.init = call.c
		kernel(call)
		if d += width; d < kv.padded {
			call.c = unsafe.Add(call.c, width*4)
		}
	}
}

// findValues lists where the values of columns [from, to) lie: those of a page in one stretch. None
// at all are a stretch of no steps.
func (b *block) findValues(from, to int) []stretch {
	kv, found := b.job.kv, b.scratch.stretches[:0]
	if kv.keyScales != nil || from >= to {
		return append(found, stretch{b.value(from), max(0, to-from)})
	}
	size := kv.shape.PageSize
	for column := from; column < to; {
		k := min(to-column, size-(b.start+column)%size)
		found, column = append(found, stretch{b.value(column), k}), column+k
	}
	return found
}

// findSteps lists where the values of some columns lie, one by one.
func (b *block) findSteps(from, steps int) {
	for i := range steps {
		b.scratch.stairs[i] = b.value(from + i)
	}
}

// value is where the value of a column lies.
func (b *block) value(column int) unsafe.Pointer {
	kv := b.job.kv
	if kv.keyScales != nil {
		return address(b.scratch.wideValues, column*kv.padded)
	}
	size := kv.shape.PageSize
	index, slot := (b.start+column)/size, (b.start+column)%size
	return kv.valueRow(kv.page(b.job.args.Layer, int(b.task.pages[index]), b.task.head), slot)
}
