package cpu

import (
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// RopeAppend implements gpu.Kernels.
func (d *Device) RopeAppend(a gpu.RopeArgs) error {
	kv := a.KV.(*kvPool)
	if err := checkRope(a, kv.shape); err != nil {
		return err
	}
	j := &d.rope
	*j = ropeJob{micro: d.micro, scratch: d.scratch, args: a, kv: kv, qkv: floats(a.QKV),
		angles: d.angles.get(a.Rope, a.Positions)}
	tasks, rows := d.split(len(a.Positions), 4*(a.Heads+2*a.KVHeads)*a.HeadDim)
	j.rowsPerTask = rows
	d.pool.run(tasks, j)
	*j = ropeJob{}
	return nil
}

type ropeJob struct {
	micro       *micro
	scratch     []*scratch
	args        gpu.RopeArgs
	kv          *kvPool
	qkv         []float32
	angles      *rowAngles
	rowsPerTask int
}

func (j *ropeJob) do(worker, task int) {
	a, s := &j.args, j.scratch[worker]
	half, width := len(a.Rope.Freqs), (a.Heads+2*a.KVHeads)*a.HeadDim
	first := task * j.rowsPerTask
	for r := first; r < min(first+j.rowsPerTask, len(a.Positions)); r++ {
		row := j.qkv[r*width:][:width]
		cos, sin := j.angles.cos[r*half:][:half], j.angles.sin[r*half:][:half]
		for h := range a.Heads + a.KVHeads {
			head := row[h*a.HeadDim:]
			j.micro.rotate(head[:half], head[half:2*half], cos, sin)
		}
		page, in := int(a.Slots[r])/j.kv.shape.PageSize, int(a.Slots[r])%j.kv.shape.PageSize
		keys, values := row[a.Heads*a.HeadDim:], row[(a.Heads+a.KVHeads)*a.HeadDim:]
		for h := range a.KVHeads {
			j.store(slot{j.kv.page(a.Layer, page, h), in},
				keys[h*a.HeadDim:][:a.HeadDim], values[h*a.HeadDim:][:a.HeadDim], s)
		}
	}
}

// rowAngles are the cosines and sines of the rows of one batch, [rows][len(rope.Freqs)].
type rowAngles struct {
	rope      *gpu.Rope
	positions []int32
	cos, sin  []float32
}

// angleCache keeps the angles of the batch under way: every layer asks for the same ones, and a
// model has at most two schedules, for its local and its global layers.
type angleCache struct {
	entries [2]rowAngles
	oldest  int
}

// get returns the angles, computed at the first layer that asks.
func (c *angleCache) get(rope *gpu.Rope, positions []int32) *rowAngles {
	for i := range c.entries {
		e := &c.entries[i]
		if e.rope == rope && slices.Equal(e.positions, positions) {
			return e
		}
	}
	e := &c.entries[c.oldest]
	c.oldest = (c.oldest + 1) % len(c.entries)
	half := len(rope.Freqs)
	e.rope, e.positions = rope, append(e.positions[:0], positions...)
	e.cos = slices.Grow(e.cos[:0], len(positions)*half)[:len(positions)*half]
	e.sin = slices.Grow(e.sin[:0], len(positions)*half)[:len(positions)*half]
	for r, p := range positions {
		angles(e.cos[r*half:][:half], e.sin[r*half:][:half], rope, p)
	}
	return e
}
