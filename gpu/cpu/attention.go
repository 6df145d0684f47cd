package cpu

import (
	"math"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

const (
	// attentionLines is the most query lines of one task.
	attentionLines = 56
	// scoreStride is the width of a line of scores: keyLanes before and after the block's columns
	// take what a panel of keys that crosses the block's edge computes too much.
	scoreStride = keyLanes + attentionBlock + keyLanes
)

// Attention implements gpu.Kernels. The lines of a task are the rows of one head, or, where
// a sequence has one row, the heads that share a key head. Either way a line's result is its own.
func (d *Device) Attention(a gpu.AttentionArgs) error {
	kv := a.KV.(*kvPool)
	if err := checkAttention(a, kv.shape); err != nil {
		return err
	}
	j := &d.attention
	j.d, j.args, j.kv, j.qkv, j.dst = d, a, kv, floats(a.QKV), floats(a.Dst)
	work := j.cut()
	for _, s := range d.scratch {
		if need := attentionLines * kv.padded; len(s.output) < need {
			s.output = make([]float32, need)
		}
		if kv.keyScales != nil {
			s.growWide(kv)
		}
	}
	if work < smallWork {
		for i := range j.tasks {
			j.do(0, i)
		}
	} else {
		d.pool.run(len(j.tasks), j)
	}
	j.args, j.kv, j.qkv, j.dst = gpu.AttentionArgs{}, nil, nil, nil
	return nil
}

type attentionJob struct {
	d        *Device
	args     gpu.AttentionArgs
	kv       *kvPool
	qkv, dst []float32
	tasks    []attentionTask // kept from call to call for its memory
}

// attentionTask is the lines that share the keys of one head. Line i stands at position
// position + i*step; its query and its output lie strides after those of line 0.
type attentionTask struct {
	pages          []int32
	head           int // of the keys
	lines          int
	position, step int
	q, out         int // index of line 0
	qStride        int
	outStride      int
}

// cut lists the tasks, the longest of each sequence first, and returns a measure of their work.
func (j *attentionJob) cut() (work int) {
	a := &j.args
	j.tasks = j.tasks[:0]
	group, dim := a.Heads/a.KVHeads, a.HeadDim
	width, out := (a.Heads+2*a.KVHeads)*dim, a.Heads*dim
	for _, s := range a.Sequences {
		work += s.Rows * (s.Start + s.Rows) * a.Heads * dim
		if s.Rows == 1 {
			for h := range a.KVHeads {
				for from := 0; from < group; from += attentionLines {
					head := h*group + from
					j.tasks = append(j.tasks, attentionTask{pages: s.Pages, head: h,
						lines: min(attentionLines, group-from), position: s.Start,
						q: s.FirstRow*width + head*dim, out: s.FirstRow*out + head*dim,
						qStride: dim, outStride: dim})
				}
			}
			continue
		}
		for row := (s.Rows - 1) / attentionLines * attentionLines; row >= 0; row -= attentionLines {
			for h := range a.Heads {
				j.tasks = append(j.tasks, attentionTask{pages: s.Pages, head: h / group,
					lines: min(attentionLines, s.Rows-row), position: s.Start + row, step: 1,
					q: (s.FirstRow+row)*width + h*dim, out: (s.FirstRow+row)*out + h*dim,
					qStride: width, outStride: out})
			}
		}
	}
	return work
}

func (j *attentionJob) do(worker, task int) {
	t, s := &j.tasks[task], j.d.scratch[worker]
	defer s.forget()
	padded, dim := j.kv.padded, j.args.HeadDim
	clear(s.output[:t.lines*padded])
	for i := range t.lines {
		s.tops[i], s.totals[i] = float32(math.Inf(-1)), 0
	}
	last := t.position + (t.lines-1)*t.step
	for start := 0; start <= last; start += attentionBlock {
		low, _ := visible(&j.args, t.position, start)
		_, high := visible(&j.args, last, start)
		if low >= high {
			continue
		}
		panels := j.findKeys(t, s, start+low, start+high)
		if j.kv.keyScales != nil {
			j.widenKeys(s, panels)
			j.widenValues(t, s, span{start + low, start + high})
		}
		for line := 0; line < t.lines; line += j.d.micro.tall {
			b := block{job: j, task: t, scratch: s, start: start, panels: panels,
				line: line, lines: min(j.d.micro.tall, t.lines-line)}
			b.do()
		}
	}
	for i := range t.lines {
		o := s.output[i*padded:][:padded]
		j.d.micro.scaleRow(o, 1/s.totals[i])
		copy(j.dst[t.out+i*t.outStride:][:dim], o)
	}
}

// block is one tile of lines on one block of positions.
type block struct {
	job         *attentionJob
	task        *attentionTask
	scratch     *scratch
	start       int        // first position of the block
	panels      []keyPanel // the keys that some line of the task goes through
	line, lines int
	low, high   [tileRows]int // what each line goes through; low >= high: nothing
}

func (b *block) do() {
	from, to, all := attentionBlock, 0, true
	common, end := 0, attentionBlock // columns that every line goes through
	for i := range b.lines {
		low, high := visible(&b.job.args, b.task.position+(b.line+i)*b.task.step, b.start)
		b.low[i], b.high[i] = low, high
		if low >= high {
			all = false
			continue
		}
		from, to = min(from, low), max(to, high)
		common, end = max(common, low), min(end, high)
	}
	if from >= to {
		return
	}
	b.scores(from, to)
	b.softmax()
	if b.beside() {
		return
	}
	if !all || common >= end {
		common, end = attentionBlock, attentionBlock
	}
	for i := range b.lines {
		b.values(i, 1, b.low[i], min(common, b.high[i]))
	}
	if common < end {
		b.values(0, b.lines, common, end)
		for i := range b.lines {
			b.values(i, 1, end, b.high[i])
		}
	}
}

// beside adds the values of a block that begins with sinks, line by line: those of the sinks, then
// those of the window. What lies between is hidden and may have lost its page. It reports whether
// this is such a block.
func (b *block) beside() bool {
	a := &b.job.args
	if a.Window == 0 || b.start >= a.Sinks {
		return false
	}
	sinks := a.Sinks - b.start
	for i := range b.lines {
		position := b.task.position + (b.line+i)*b.task.step
		low := max(sinks, position-a.Window+1-b.start)
		b.values(i, 1, 0, min(sinks, b.high[i]))
		b.values(i, 1, low, b.high[i])
	}
	return true
}

// keyPanel is keyLanes keys side by side.
type keyPanel struct {
	address unsafe.Pointer
	scales  unsafe.Pointer // of Q8_0
	first   int            // position of the first of them
	after   int            // first position that has another panel
}

// findKeys lists the panels with the keys of positions [from, to). A page that is gone has hidden
// keys only, and is left out.
func (j *attentionJob) findKeys(t *attentionTask, s *scratch, from, to int) []keyPanel {
	size, found := j.kv.shape.PageSize, s.panels[:0]
	for position := from; position < to; {
		index, slot := position/size, position%size
		if t.pages[index] < 0 {
			position = (index + 1) * size
			continue
		}
		slot -= slot % keyLanes
		page := j.kv.page(j.args.Layer, int(t.pages[index]), t.head)
		first := index*size + slot
		p := keyPanel{address: j.kv.keyPanel(page, slot), first: first,
			after: first + min(keyLanes, size-slot)}
		if j.kv.keyScales != nil {
			p.scales = j.kv.keyScales.at(j.kv.keyScale(page, slot) * scaleSize)
		}
		found, position = append(found, p), p.after
	}
	return found
}

// scores computes q·k for columns [from, to), and for a few more that softmax hides. Panels go in
// ascending order, so that each overwrites what the one before it computed beyond its page.
func (b *block) scores(from, to int) {
	j, t := b.job, b.task
	dtype, size := j.kv.seen()
	call := &b.scratch.call
	*call = tile{
		k: j.args.HeadDim, a: address(j.qkv, t.q+b.line*t.qStride), lda: uintptr(t.qStride) * 4,
		ldb: uintptr(keyLanes * size), ldc: scoreStride * 4,
		init: unsafe.Pointer(&j.d.zeros),
	}
	one, pair := j.d.micro.tiles[dtype][b.lines], j.d.micro.pairs[dtype][b.lines]
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

// softmax folds the block into the states of the lines that see some of it.
func (b *block) softmax() {
	s, micro, padded := b.scratch, b.job.d.micro, b.job.kv.padded
	for i := 0; i < b.lines; {
		first := i
		for ; i < b.lines && b.low[i] < b.high[i]; i++ {
			b.hide(i)
		}
		if i == first {
			i++
			continue
		}
		c, line := &s.softmax, b.line+first
		c.scores = (*[attentionBlock]float32)(s.scores[first*scoreStride+keyLanes:])
		c.lines, c.scale = i-first, scaleBehindCap(&b.job.args)
		c.top, c.total = &s.tops[line], &s.totals[line]
		micro.softmax(c)
		for k, correction := range c.correction[:c.lines] {
			if correction != 1 {
				micro.scaleRow(s.output[(line+k)*padded:][:padded], correction)
			}
		}
	}
}

// hide bounds the scores of line i and hides those of what it does not see.
func (b *block) hide(i int) {
	s, line := b.scratch, b.line+i
	scores := (*[attentionBlock]float32)(s.scores[i*scoreStride+keyLanes:])
	if b.job.args.Cap > 0 {
		for column := b.low[i]; column < b.high[i]; column++ {
			scores[column] = capped(scores[column], &b.job.args)
		}
	}
	hide := float32(math.Inf(-1))
	for column := range b.low[i] {
		scores[column] = hide
	}
	for column := b.high[i]; column < attentionBlock; column++ {
		scores[column] = hide
	}
	if position := b.task.position + line*b.task.step; b.job.args.Window > 0 {
		for column := b.low[i]; column < b.high[i]; column++ {
			if hidden(&b.job.args, position, b.start+column) {
				scores[column] = hide
			}
		}
	}
}

// values adds the weighted values of columns [from, to) to the outputs of a few lines of the tile.
func (b *block) values(line, lines, from, to int) {
	if from >= to {
		return
	}
	s, kv, micro := b.scratch, b.job.kv, b.job.d.micro
	dtype, size := kv.seen()
	row, stretches := uintptr(kv.padded)*4, b.findValues(from, to)
	call := &s.call
	*call = tile{
		a: address(s.scores[:], line*scoreStride+keyLanes+from), lda: scoreStride * 4,
		ldb: uintptr(kv.padded * size), panel: uintptr(panelRows * size),
		c: address(s.output, (b.line+line)*kv.padded), ldc: row, ldi: row,
	}
	for d := 0; d < kv.padded; {
		kernel, columns := micro.tiles[dtype][lines], panelRows
		switch {
		case lines == 1 && d+widePanels*panelRows <= kv.padded:
			kernel, columns = micro.wide[dtype], widePanels*panelRows
		case micro.pairs[dtype][lines] != nil && d+pairPanels*panelRows <= kv.padded:
			kernel, columns = micro.pairs[dtype][lines], pairPanels*panelRows
		}
		call.b, call.k = stretches[0].b, stretches[0].k
		call.rest, call.next = len(stretches)-1, &s.stretches[1]
		call.init = call.c
		kernel(call)
		if d += columns; d == kv.padded {
			return
		}
		call.c = unsafe.Add(call.c, columns*4)
		for i := range stretches {
			stretches[i].b = unsafe.Add(stretches[i].b, columns*size)
		}
	}
}

// findValues lists where the values of columns [from, to) lie: those of a page in one stretch.
func (b *block) findValues(from, to int) []stretch {
	kv, found := b.job.kv, b.scratch.stretches[:0]
	if kv.keyScales != nil {
		return append(found, stretch{address(b.scratch.wideValues, from*kv.padded), to - from})
	}
	size := kv.shape.PageSize
	for column := from; column < to; {
		index, slot := (b.start+column)/size, (b.start+column)%size
		page := kv.page(b.job.args.Layer, int(b.task.pages[index]), b.task.head)
		k := min(to-column, size-slot)
		found, column = append(found, stretch{kv.valueRow(page, slot), k}), column+k
	}
	return found
}
