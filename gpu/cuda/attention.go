package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// planned is a plan that lies in an arena, with what it was made of: layers share it.
type planned struct {
	plan          *kernels.Plan
	words         uint64
	shape         gpu.KVShape
	window, sinks int
	sequences     []gpu.AttentionSequence
}

func (p *planned) of(a *gpu.AttentionArgs, shape gpu.KVShape) bool {
	return p.shape == shape && p.window == a.Window && p.sinks == a.Sinks &&
		slices.EqualFunc(p.sequences, a.Sequences, sameSequence)
}

func sameSequence(a, b gpu.AttentionSequence) bool {
	return a.FirstRow == b.FirstRow && a.Rows == b.Rows && a.Start == b.Start &&
		slices.Equal(a.Pages, b.Pages)
}

// Attention implements gpu.Kernels.
func (d *Device) Attention(a gpu.AttentionArgs) error {
	pool := a.KV.(*kv)
	if err := cpu.CheckAttention(a, pool.shape); err != nil {
		return err
	}
	p, err := d.plan(&a, pool)
	if err != nil {
		return err
	}
	parts := driver.Pointer(0)
	if floats := p.plan.ScratchFloats(a.Heads, a.HeadDim); floats > 0 {
		if parts, err = d.scratch.take(d, attentionParts, 4*int64(floats)); err != nil {
			return err
		}
	}
	launches := kernels.Attention{Dst: at(a.Dst), QKV: at(a.QKV), Layer: pool.layer(a.Layer),
		Words: p.words, Scratch: uint64(parts), Plan: p.plan, Shape: pool.shape, Heads: a.Heads,
		Scale: a.Scale, Cap: a.Cap, Window: a.Window, Sinks: a.Sinks}.
		Append(nil, d.options.Type)
	for _, l := range launches {
		d.current.queue(l)
	}
	return nil
}

// plan finds or makes the plan of a batch, in the arena that is current then.
func (d *Device) plan(a *gpu.AttentionArgs, pool *kv) (*planned, error) {
	if d.current != nil {
		for i := range d.current.plans {
			if p := &d.current.plans[i]; p.of(a, pool.shape) {
				return p, nil
			}
		}
	}
	p := planned{plan: &kernels.Plan{}, shape: pool.shape, window: a.Window, sinks: a.Sinks}
	p.plan.Make(kernels.Batch{Shape: pool.shape, Shared: d.info.SharedPerBlock, Window: a.Window,
		Sinks: a.Sinks, Sequences: a.Sequences})
	arena, err := d.arena(room(len(p.plan.Words)))
	if err != nil {
		return nil, fmt.Errorf("attention over %d sequences: %w", len(a.Sequences), err)
	}
	p.words = arena.put(p.plan.Words)
	for _, s := range a.Sequences {
		s.Pages = slices.Clone(s.Pages)
		p.sequences = append(p.sequences, s)
	}
	arena.plans = append(arena.plans, p)
	return &arena.plans[len(arena.plans)-1], nil
}

// table is the angles of some positions in a scratch memory, made in this batch of work.
type table struct {
	rope      *gpu.Rope
	positions []int32
	at        uint64
}

// RopeAppend implements gpu.Kernels.
func (d *Device) RopeAppend(r gpu.RopeArgs) error {
	pool := r.KV.(*kv)
	if err := cpu.CheckRope(r, pool.shape); err != nil {
		return err
	}
	if len(r.Positions) == 0 {
		return nil
	}
	d.outgoing.overwritten(pool, r.Layer, r.Slots)
	angles, err := d.angles(&r)
	if err != nil {
		return err
	}
	a, err := d.arena(room(len(r.Slots)))
	if err != nil {
		return err
	}
	a.queue(kernels.RopeAppend{QKV: at(r.QKV), Layer: pool.layer(r.Layer), Table: angles,
		Slots: a.put(r.Slots), KVType: pool.shape.DType, Rows: len(r.Slots), Heads: r.Heads,
		KVHeads: r.KVHeads, Dim: r.HeadDim, Half: len(r.Rope.Freqs),
		PageSize: pool.shape.PageSize}.Launch(d.options.Type))
	return nil
}

// angles finds or makes the table of cosines and sines of the batch's positions.
func (d *Device) angles(r *gpu.RopeArgs) (uint64, error) {
	which := 0
	if d.current != nil {
		for _, t := range d.current.tables {
			if t.rope == r.Rope && slices.Equal(t.positions, r.Positions) {
				return t.at, nil
			}
		}
		which = len(d.current.tables) % maxRotations
	}
	rows, half := len(r.Positions), len(r.Rope.Freqs)
	to, err := d.scratch.take(d, rotations+which, int64(max(rows*half*8, 1)))
	if err != nil {
		return 0, err
	}
	a, err := d.arena(room(rows, 2*half))
	if err != nil {
		return 0, err
	}
	positions := a.put(r.Positions)
	freqs, address := a.room(8 * half)
	for i, f := range r.Rope.Freqs {
		binary.LittleEndian.PutUint64(freqs[8*i:], math.Float64bits(f))
	}
	a.queue(kernels.RopeTable{Table: uint64(to), Positions: positions, Freqs: address, Rows: rows,
		Half: half, Scale: r.Rope.Scale}.Launch())
	a.tables = append(a.tables, table{r.Rope, slices.Clone(r.Positions), uint64(to)})
	return uint64(to), nil
}
