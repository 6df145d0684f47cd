package cuda

import (
	"math"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// room is what lists of so many int32 numbers take of an arena.
func room(lists ...int) int {
	total := 0
	for _, n := range lists {
		total += 4*n + arenaStep
	}
	return total
}

// launchable is a kernel that comes in the types of rows.
type launchable interface {
	Launch(gpu.DType) kernels.Launch
}

// queue queues a kernel that reads nothing from the host.
func (d *Device) queue(k launchable) error {
	a, err := d.arena(0)
	if err == nil {
		a.queue(k.Launch(d.options.Type))
	}
	return err
}

// Embed implements gpu.Kernels.
func (d *Device) Embed(dst gpu.Buffer, table gpu.Matrix, tokens []int32, scale float32) error {
	if err := cpu.CheckEmbed(dst, table, tokens); err != nil {
		return err
	}
	a, err := d.arena(room(len(tokens)))
	if err != nil {
		return err
	}
	m := table.(*matrix)
	a.queue(kernels.Embed{Dst: at(dst), Table: uint64(m.at), TableType: d.options.Type,
		Tokens: a.put(tokens), Rows: len(tokens), Width: m.cols, Scale: scale}.
		Launch(d.options.Type))
	return nil
}

// Norm implements gpu.Kernels.
func (d *Device) Norm(n gpu.NormArgs) error {
	n, err := cpu.CheckNorm(n)
	if err != nil {
		return err
	}
	return d.queue(kernels.Norm{Dst: at(n.Dst), X: at(n.X), Weight: at(n.Weight), Rows: n.Rows,
		Dim: n.Dim, Groups: n.Groups, Stride: n.Stride, Offset: n.Offset, Eps: n.Eps,
		WeightOffset: n.WeightOffset, Accumulate: n.Accumulate})
}

// MatMul implements gpu.Kernels.
func (d *Device) MatMul(m gpu.MatMulArgs) error {
	if err := cpu.CheckMatMul(m); err != nil {
		return err
	}
	if m.Rows == 0 {
		return nil
	}
	a, err := d.arena(0)
	if err != nil {
		return err
	}
	w, t := m.W.(*matrix), d.products()
	p := driver.Product{M: m.Rows, N: w.rows, K: w.cols, A: driver.Pointer(at(m.X)), B: w.at,
		C: driver.Pointer(at(m.Dst)), In: t, Out: t}
	if m.Bias != nil {
		a.queue(kernels.Bias{Dst: at(m.Dst), Bias: at(m.Bias), Rows: m.Rows, Width: w.rows}.
			Launch(d.options.Type))
	}
	if m.Bias != nil || m.Accumulate {
		p.Beta = 1
	}
	a.ops = append(a.ops, op{product: p})
	a.product = len(a.ops) - 1
	return nil
}

// products is the type of rows as the library of products knows it.
func (d *Device) products() driver.Type {
	if d.options.Type == gpu.F16 {
		return driver.Float16
	}
	return driver.BFloat16
}

// GLU implements gpu.Kernels.
func (d *Device) GLU(g gpu.GLUArgs) error {
	if err := cpu.CheckGLU(g); err != nil {
		return err
	}
	return d.queue(kernels.GLU{Dst: at(g.Dst), GateUp: at(g.GateUp), Rows: g.Rows, Width: g.Width,
		Activation: g.Activation})
}

// Gather implements gpu.Kernels.
func (d *Device) Gather(dst, src gpu.Buffer, rows []int32, width int) error {
	if err := cpu.CheckGather(dst, src, rows, width); err != nil {
		return err
	}
	a, err := d.arena(room(len(rows)))
	if err != nil {
		return err
	}
	a.queue(kernels.Gather{Dst: at(dst), Src: at(src), Rows: a.put(rows), Count: len(rows),
		Width: width}.Launch(d.options.Type))
	return nil
}

// AddRows implements gpu.Kernels.
func (d *Device) AddRows(r gpu.AddRowsArgs) error {
	if err := cpu.CheckAddRows(r); err != nil {
		return err
	}
	a, err := d.arena(room(len(r.Rows), len(r.Rows)))
	if err != nil {
		return err
	}
	factors := make([]int32, len(r.Factors))
	for i, f := range r.Factors {
		factors[i] = int32(math.Float32bits(f))
	}
	a.queue(kernels.AddRows{Dst: at(r.Dst), X: at(r.X), Rows: a.put(r.Rows),
		Factors: a.put(factors), Count: len(r.Rows), Width: r.Width}.Launch(d.options.Type))
	return nil
}
