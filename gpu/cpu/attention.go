package cpu

import (
	"math"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

const (
	// attentionLines is the most query lines of one task, usualLines that of one whose sequence
	// does not begin behind deepFrom positions. Long tasks read keys and values less often from
	// beyond the nearest cache; but where few positions lie before them, threads wait for the last.
	attentionLines = 112
	usualLines     = 56
	deepFrom       = 1024
	deepTasks      = 16 // for each thread: with fewer, tasks stay short
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
	for i := range j.below {
		j.below[i] = float32(math.Inf(-1))
	}
	j.d, j.args, j.kv, j.qkv, j.dst = d, a, kv, floats(a.QKV), floats(a.Dst)
	work := j.cut()
	for _, s := range d.scratch {
		if need := attentionLines * kv.padded; len(s.output) < need {
			s.output, s.queries = newMemory(4*need).floats(), newMemory(4*need).floats()
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
	tasks    []attentionTask         // kept from call to call for its memory
	below    [attentionBlock]float32 // -Inf, what hides a score
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
		most := j.mostLines(&s)
		for row := (s.Rows - 1) / most * most; row >= 0; row -= most {
			for h := range a.Heads {
				j.tasks = append(j.tasks, attentionTask{pages: s.Pages, head: h / group,
					lines: min(most, s.Rows-row), position: s.Start + row, step: 1,
					q: (s.FirstRow+row)*width + h*dim, out: (s.FirstRow+row)*out + h*dim,
					qStride: width, outStride: out})
			}
		}
	}
	return work
}

// mostLines is how many rows of a sequence a task takes at most.
func (j *attentionJob) mostLines(s *gpu.AttentionSequence) int {
	tall := j.d.micro.tall
	most := attentionLines / tall * tall
	tasks := (s.Rows + most - 1) / most * j.args.Heads
	if s.Start < deepFrom || tasks < deepTasks*j.d.pool.threads() {
		return usualLines / tall * tall
	}
	return most
}

func (j *attentionJob) do(worker, task int) {
	t, s := &j.tasks[task], j.d.scratch[worker]
	defer s.forget()
	j.open(t, s)
	j.openSweeps(s)
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
		if t.lines < j.d.micro.tall { // the more lines, the more time for the next block to come
			j.fetch(t, start+attentionBlock, min(last+1, start+2*attentionBlock))
		}
		b := block{job: j, task: t, scratch: s, start: start, panels: panels}
		b.dtype, b.size = j.kv.seen()
		if t.lines >= j.d.micro.tall {
			b.listKeys()
		}
		if plain(&j.args, last, start) && t.position >= start+attentionBlock-1 {
			b.stretches = b.findPages()
			if j.args.Cap == 0 && j.d.micro.sweep[b.dtype] != nil && b.sideBySide() {
				b.whole()
			}
		} else {
			b.findColumns(low, high)
		}
		for ; b.line < t.lines; b.line += j.d.micro.tall {
			b.lines = min(j.d.micro.tall, t.lines-b.line)
			b.do()
		}
	}
	padded := j.kv.padded
	for i := range t.lines {
		o := s.output[i*padded:][:padded]
		j.d.micro.scaleRow(o, 1/s.totals[i])
		copy(j.dst[t.out+i*t.outStride:][:j.args.HeadDim], o)
	}
}

// fetch asks for the keys and values of positions [from, to), which come next: a page's part of one
// head is short, and the processor's own prefetching begins anew with each.
func (j *attentionJob) fetch(t *attentionTask, from, to int) {
	kv, size := j.kv, j.kv.shape.PageSize
	for position := from; position < to; {
		index, slot := position/size, position%size
		slots := min(to-position, size-slot)
		if t.pages[index] >= 0 {
			page := kv.page(j.args.Layer, int(t.pages[index]), t.head)
			low := slot - slot%keyLanes
			j.d.micro.fetch(kv.keyPanel(page, low), (slot+slots-low)*j.args.HeadDim*kv.size)
			j.d.micro.fetch(kv.valueRow(page, slot), slots*kv.padded*kv.size)
		}
		position += slots
	}
}

// open prepares the states of a task's lines. Their queries are brought together: where they come
// from they may lie a power of two apart, and then in few sets of the nearest cache.
func (j *attentionJob) open(t *attentionTask, s *scratch) {
	dim := j.args.HeadDim
	clear(s.output[:t.lines*j.kv.padded])
	for i := range t.lines {
		s.tops[i], s.totals[i] = float32(math.Inf(-1)), 0
		copy(s.queries[i*dim:][:dim], j.qkv[t.q+i*t.qStride:])
	}
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
	index, slot := from/size, from%size
	for slot -= slot % keyLanes; index*size+slot < to; {
		if t.pages[index] >= 0 {
			page := j.kv.page(j.args.Layer, int(t.pages[index]), t.head)
			first := index*size + slot
			p := keyPanel{address: j.kv.keyPanel(page, slot), first: first,
				after: first + min(keyLanes, size-slot)}
			if j.kv.keyScales != nil {
				p.scales = j.kv.keyScales.at(j.kv.keyScale(page, slot) * scaleSize)
			}
			found = append(found, p)
		} else {
			slot = size
		}
		if slot += keyLanes; slot >= size {
			index, slot = index+1, 0
		}
	}
	return found
}
