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
	dtype       gpu.DType  // of keys and values as kernels see them
	size        int        // of a number of them
	line, lines int
}

// plain says whether the mask of a block is the causal one alone, for queries up to position last.
func plain(a *gpu.AttentionArgs, last, start int) bool {
	return a.Window == 0 || start+attentionBlock <= a.Sinks ||
		start >= a.Sinks && start > last-a.Window
}

// whole does the tiles of tall lines of a block that every line goes through all of, and whose keys
// lie side by side. Nearly all tiles of a long prompt are such: what is the same for all of them is
// filled in once.
func (b *block) whole() {
	s, micro, a, padded := b.scratch, b.job.d.micro, &b.job.args, b.job.kv.padded
	sweep, keys, values, soft := micro.sweep[b.dtype], &s.keySweep, &s.valueSweep, &s.softmax
	scores := &s.scores[keyLanes]
	keys.list, keys.panels, keys.c = &s.keyList[0], len(b.panels), unsafe.Pointer(scores)
	values.list, values.count, values.steps = &b.stretches[0], len(b.stretches), 0
	values.a = unsafe.Pointer(scores)
	soft.scores = (*[attentionBlock]float32)(unsafe.Pointer(scores))
	soft.lines, soft.scale, soft.width = micro.tall, a.Scale, padded
	for ; b.line+micro.tall <= b.task.lines; b.line += micro.tall {
		keys.a = unsafe.Pointer(&s.queries[b.line*a.HeadDim])
		sweep(keys)
		output := &s.output[b.line*padded]
		soft.top, soft.total, soft.output = &s.tops[b.line], &s.totals[b.line], output
		micro.softmax(soft)
		values.c, values.init = unsafe.Pointer(output), unsafe.Pointer(output)
		sweep(values)
	}
}

// sideBySide says whether the panels of keys are a block's, one behind another.
func (b *block) sideBySide() bool {
	for i, p := range b.panels {
		if p.first != b.start+i*keyLanes {
			return false
		}
	}
	return true
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
	if s := (stairs{max(1, 1-seen), to - common}); s.steps == 0 || b.sweeps() {
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
			b.hideBetween(i, sees[i])
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
	s := b.scratch
	first := 0
	for first < len(b.panels) && b.panels[first].after <= b.start+from {
		first++
	}
	last := first
	for last < len(b.panels) && b.panels[last].first < b.start+to {
		last++
	}
	if !b.sweeps() {
		b.scoreTiles(span{first, last})
		return
	}
	kernel, call := b.job.d.micro.sweep[b.dtype], &s.keySweep
	call.a = address(s.queries, b.line*b.job.args.HeadDim)
	for first < last {
		position := b.panels[first].first
		n := 1
		for first+n < last && b.panels[first+n].first == position+n*keyLanes {
			n++
		}
		call.list, call.panels = &s.keyList[first], n
		call.c = unsafe.Pointer(&s.scores[keyLanes+position-b.start])
		kernel(call)
		first += n
	}
}

// scoreTiles is scores by tile kernels, for some of the panels.
func (b *block) scoreTiles(which span) {
	j, dim := b.job, b.job.args.HeadDim
	call := &b.scratch.call
	*call = tile{
		k: dim, a: address(b.scratch.queries, b.line*dim), lda: uintptr(dim) * 4,
		ldb: uintptr(keyLanes * b.size), ldc: scoreStride * 4,
		init: unsafe.Pointer(&j.d.zeros),
	}
	one, pair := j.d.micro.tiles[b.dtype][b.lines], j.d.micro.pairs[b.dtype][b.lines]
	for panels := b.panels[which.first:which.last]; len(panels) > 0; {
		p := &panels[0]
		call.b = p.address
		call.c = unsafe.Pointer(&b.scratch.scores[keyLanes+p.first-b.start])
		if pair != nil && len(panels) > 1 && panels[1].first == p.first+keyLanes {
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

// hide bounds the scores of line i and hides those before and behind what it sees.
func (b *block) hide(i int, sees span) {
	a := &b.job.args
	scores := (*[attentionBlock]float32)(b.scratch.scores[i*scoreStride+keyLanes:])
	if a.Cap > 0 {
		for column := sees.first; column < sees.last; column++ {
			scores[column] = capped(scores[column], a)
		}
	}
	if sees.first > 0 {
		copy(scores[:sees.first], b.job.below[:])
	}
	if sees.last < attentionBlock {
		copy(scores[sees.last:], b.job.below[:])
	}
}

// hideBetween hides the scores of line i that lie behind the sinks and before the window.
func (b *block) hideBetween(i int, sees span) {
	a := &b.job.args
	scores := (*[attentionBlock]float32)(b.scratch.scores[i*scoreStride+keyLanes:])
	position := b.task.position + (b.line+i)*b.task.step
	for column := sees.first; column < sees.last; column++ {
		if hidden(a, position, b.start+column) {
			scores[column] = b.job.below[0]
		}
	}
}

// stairs are columns behind those that all lines of a tile see: the first of them is seen from line
// first on, each one after it from one line further down.
type stairs struct{ first, steps int }

// sweeps says whether there are kernels for tiles like this one that take panel after panel, and
// stairs.
func (b *block) sweeps() bool {
	return b.lines == b.job.d.micro.tall && b.job.d.micro.sweep[b.dtype] != nil
}

// listKeys lists the panels as sweeping kernels want them.
func (b *block) listKeys() {
	for i := range b.panels {
		b.scratch.keyList[i] = stretch{b.panels[i].address, b.job.args.HeadDim}
	}
}

// openSweeps fills in what the calls of sweeping kernels have in common, for all tiles of a task.
func (j *attentionJob) openSweeps(s *scratch) {
	dim, row := uintptr(j.args.HeadDim), uintptr(j.kv.padded)
	_, bytes := j.kv.seen()
	size := uintptr(bytes)
	s.keySweep = sweep{lda: dim * 4, ldb: keyLanes * size, count: 1,
		along: unsafe.Sizeof(stretch{}), ldc: scoreStride * 4, init: unsafe.Pointer(&j.d.zeros)}
	s.valueSweep = sweep{lda: scoreStride * 4, ldb: row * size, across: panelRows * size,
		ldc: row * 4, ldi: row * 4, ahead: panelRows * 4, panels: j.kv.padded / panelRows}
}

// values adds the weighted values of some columns, and of the stairs behind them, to the outputs of
// some lines of the tile.
func (b *block) values(lines, columns span, up stairs) {
	if columns.first >= columns.last && up.steps == 0 {
		return
	}
	s, padded := b.scratch, b.job.kv.padded
	stretches := b.stretches
	if stretches == nil {
		stretches = b.findValues(columns.first, columns.last)
	}
	a := address(s.scores[:], lines.first*scoreStride+keyLanes+columns.first)
	c := address(s.output, (b.line+lines.first)*padded)
	if lines.last-lines.first != b.lines || !b.sweeps() {
		b.valueTiles(lines.last-lines.first, stretches, a, c)
		return
	}
	call := &s.valueSweep
	call.a, call.c, call.init = a, c, c
	call.list, call.count = &stretches[0], len(stretches)
	call.first, call.steps = up.first, up.steps
	if up.steps > 0 {
		call.stairs = &s.columns[columns.last]
	}
	b.job.d.micro.sweep[b.dtype](call)
}

// valueTiles is values by tile kernels: of rows of weights from a on, to outputs from c on.
func (b *block) valueTiles(rows int, stretches []stretch, a, c unsafe.Pointer) {
	s, kv, micro := b.scratch, b.job.kv, b.job.d.micro
	row, call := uintptr(kv.padded)*4, &s.call
	*call = tile{
		a: a, lda: scoreStride * 4,
		ldb: uintptr(kv.padded * b.size), panel: uintptr(panelRows * b.size),
		c: c, ldc: row, ldi: row,
	}
	one, pair := micro.tiles[b.dtype][rows], micro.pairs[b.dtype][rows]
	for d := 0; d < kv.padded; {
		kernel, width := one, panelRows
		switch {
		case rows == 1 && d+widePanels*panelRows <= kv.padded:
			kernel, width = micro.wide[b.dtype], widePanels*panelRows
		case pair != nil && d+pairPanels*panelRows <= kv.padded:
			kernel, width = pair, pairPanels*panelRows
		}
		call.shift = uintptr(d * b.size)
		call.b, call.k = unsafe.Add(stretches[0].b, call.shift), stretches[0].k
		call.rest, call.next = len(stretches)-1, &s.stretches[1]
		call.init = call.c
		kernel(call)
		if d += width; d < kv.padded {
			call.c = unsafe.Add(call.c, width*4)
		}
	}
}

// findPages lists where the values of all columns lie, those of a page in one stretch.
func (b *block) findPages() []stretch {
	found := b.scratch.stretches[:0]
	for column := 0; column < attentionBlock; {
		v := b.value(column)
		v.k = min(v.k, attentionBlock-column)
		found, column = append(found, v), column+v.k
	}
	return found
}

// findColumns finds where the value of each of columns [from, to) lies, and how many of its page's
// follow. Pages that are gone are left out.
func (b *block) findColumns(from, to int) {
	row := b.job.kv.padded * b.size
	for column := from; column < to; {
		v := b.value(column)
		next := min(to, column+v.k)
		for i := 0; v.b != nil && column+i < next; i++ {
			b.scratch.columns[column+i] = stretch{unsafe.Add(v.b, i*row), v.k - i}
		}
		column = next
	}
}

// value is where the value of a column lies, with those that follow it in its page. One that is
// gone lies nowhere.
func (b *block) value(column int) stretch {
	kv := b.job.kv
	if kv.keyScales != nil {
		return stretch{address(b.scratch.wideValues, column*kv.padded), attentionBlock - column}
	}
	size := kv.shape.PageSize
	index, slot := (b.start+column)/size, (b.start+column)%size
	v := stretch{k: size - slot}
	if page := b.task.pages[index]; page >= 0 {
		v.b = kv.valueRow(kv.page(b.job.args.Layer, int(page), b.task.head), slot)
	}
	return v
}

// findValues is findPages for columns [from, to) of those that were found. None at all are a
// stretch of no steps.
func (b *block) findValues(from, to int) []stretch {
	found := b.scratch.stretches[:0]
	for column := from; column < to; {
		v := b.scratch.columns[column]
		v.k = min(v.k, to-column)
		found, column = append(found, v), column+v.k
	}
	if len(found) == 0 {
		found = append(found, stretch{})
	}
	return found
}
