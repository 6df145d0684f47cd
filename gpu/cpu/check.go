package cpu

import (
	"fmt"

	"github.com/kvrelay/engine/gpu"
)

// Every kernel checks its arguments before it touches memory, so that a wrong page or token is an
// error and not somebody else's data.

// fits is an error when rows*width elements do not fit in a buffer.
func fits(what string, b gpu.Buffer, rows, width int) error {
	if rows < 0 || width < 0 || rows*width > b.Elements() {
		return fmt.Errorf("%s: %d rows of %d do not fit in %d elements",
			what, rows, width, b.Elements())
	}
	return nil
}

// inRange is an error when an index is outside [0, limit).
func inRange(what string, index, limit int) error {
	if index < 0 || index >= limit {
		return fmt.Errorf("%s %d is outside [0, %d)", what, index, limit)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkEmbed(dst gpu.Buffer, table gpu.Matrix, tokens []int32) error {
	for _, t := range tokens {
		if err := inRange("embed: token", int(t), table.Rows()); err != nil {
			return err
		}
	}
	return fits("embed: destination", dst, len(tokens), table.Cols())
}

// normalised fills the zero values that stand for defaults, after checking.
func normalised(a gpu.NormArgs) (gpu.NormArgs, error) {
	if a.Groups == 0 {
		a.Groups = 1
	}
	if a.Stride == 0 {
		a.Stride = a.Groups * a.Dim
	}
	if a.Dim <= 0 || a.Rows < 0 || a.Offset < 0 || a.Offset+a.Groups*a.Dim > a.Stride {
		return a, fmt.Errorf("norm: %d groups of %d from element %d do not fit in rows of %d",
			a.Groups, a.Dim, a.Offset, a.Stride)
	}
	return a, first(
		fits("norm: source", a.X, a.Rows, a.Stride),
		fits("norm: destination", a.Dst, a.Rows, a.Stride),
		fits("norm: weight", a.Weight, 1, a.Dim))
}

func checkMatMul(a gpu.MatMulArgs) error {
	if a.Accumulate && a.Bias != nil {
		return fmt.Errorf("matmul: a bias together with accumulation")
	}
	if a.Bias != nil {
		if err := fits("matmul: bias", a.Bias, 1, a.W.Rows()); err != nil {
			return err
		}
	}
	return first(
		fits("matmul: source", a.X, a.Rows, a.W.Cols()),
		fits("matmul: destination", a.Dst, a.Rows, a.W.Rows()))
}

func checkGated(m gpu.MatMulArgs, g gpu.GLUArgs) error {
	if m.Dst != g.GateUp || m.Rows != g.Rows || m.W.Rows() != 2*g.Width || m.Accumulate {
		return fmt.Errorf("gated matmul: %d outputs of %d rows for a glu of width %d on %d rows, "+
			"accumulating %t", m.W.Rows(), m.Rows, g.Width, g.Rows, m.Accumulate)
	}
	return nil
}

func checkPack(parts []gpu.Tensor) error {
	if len(parts) == 0 {
		return fmt.Errorf("pack: no tensors")
	}
	for i, t := range parts {
		if t.Cols != parts[0].Cols {
			return fmt.Errorf("pack: part %d has %d columns, the first has %d",
				i, t.Cols, parts[0].Cols)
		}
		length, _ := t.DType.Block()
		if length == 0 || t.Rows <= 0 || t.Cols <= 0 || t.Cols%length != 0 ||
			len(t.Data) != t.Rows*t.DType.RowBytes(t.Cols) {
			return fmt.Errorf("pack: part %d: %d bytes for [%d][%d] %v",
				i, len(t.Data), t.Rows, t.Cols, t.DType)
		}
	}
	return nil
}

func checkRope(a gpu.RopeArgs, shape gpu.KVShape) error {
	rows := len(a.Positions)
	if len(a.Slots) != rows {
		return fmt.Errorf("rope: %d positions and %d slots", rows, len(a.Slots))
	}
	if len(a.Rope.Freqs)*2 > a.HeadDim {
		return fmt.Errorf("rope: %d frequencies for heads of %d", len(a.Rope.Freqs), a.HeadDim)
	}
	for r, slot := range a.Slots {
		if a.Positions[r] < 0 {
			return fmt.Errorf("rope: row %d has position %d", r, a.Positions[r])
		}
		if err := inRange("rope: slot", int(slot), shape.Pages*shape.PageSize); err != nil {
			return err
		}
	}
	return first(
		checkHeads(shape, a.Layer, a.KVHeads, a.HeadDim),
		fits("rope: rows", a.QKV, rows, (a.Heads+2*a.KVHeads)*a.HeadDim))
}

func checkHeads(shape gpu.KVShape, layer, kvHeads, headDim int) error {
	if kvHeads != shape.KVHeads || headDim != shape.HeadDim {
		return fmt.Errorf("%d heads of %d on a pool of %d heads of %d",
			kvHeads, headDim, shape.KVHeads, shape.HeadDim)
	}
	return inRange("layer", layer, shape.Layers)
}

func checkAttention(a gpu.AttentionArgs, shape gpu.KVShape) error {
	if a.KVHeads <= 0 || a.Heads <= 0 || a.Heads%a.KVHeads != 0 ||
		!(a.Scale > 0) || !(a.Cap >= 0) ||
		a.Window < 0 || a.Sinks < 0 {
		return fmt.Errorf("attention: %d heads on %d, scale %g, window %d, sinks %d",
			a.Heads, a.KVHeads, a.Scale, a.Window, a.Sinks)
	}
	rows := 0
	for i, s := range a.Sequences {
		if s.FirstRow < 0 || s.Rows < 0 || s.Start < 0 ||
			s.Start+s.Rows > len(s.Pages)*shape.PageSize {
			return fmt.Errorf("attention: sequence %d: positions [%d, %d) on %d pages of %d",
				i, s.Start, s.Start+s.Rows, len(s.Pages), shape.PageSize)
		}
		for k, p := range s.Pages {
			if p == gpu.NoPage && slidOut(&a, s.Start, k*shape.PageSize, shape.PageSize) {
				continue
			}
			if err := inRange("attention: page", int(p), shape.Pages); err != nil {
				return err
			}
		}
		rows = max(rows, s.FirstRow+s.Rows)
	}
	return first(
		checkHeads(shape, a.Layer, a.KVHeads, a.HeadDim),
		fits("attention: source", a.QKV, rows, (a.Heads+2*a.KVHeads)*a.HeadDim),
		fits("attention: destination", a.Dst, rows, a.Heads*a.HeadDim))
}

func checkGLU(a gpu.GLUArgs) error {
	if a.Activation > gpu.GELUTanh {
		return fmt.Errorf("glu: activation %d", a.Activation)
	}
	return first(
		fits("glu: source", a.GateUp, a.Rows, 2*a.Width),
		fits("glu: destination", a.Dst, a.Rows, a.Width))
}

func checkGather(dst, src gpu.Buffer, rows []int32, width int) error {
	for _, r := range rows {
		if r < 0 || (int(r)+1)*width > src.Elements() {
			return fmt.Errorf("gather: row %d of %d in %d elements", r, width, src.Elements())
		}
	}
	return fits("gather: destination", dst, len(rows), width)
}

func checkAddRows(a gpu.AddRowsArgs) error {
	if len(a.Factors) != len(a.Rows) {
		return fmt.Errorf("add rows: %d rows and %d factors", len(a.Rows), len(a.Factors))
	}
	last := int32(-1)
	for _, r := range a.Rows {
		if r <= last {
			return fmt.Errorf("add rows: row %d after row %d: they must ascend", r, last)
		}
		last = r
	}
	return first(
		fits("add rows: source", a.X, len(a.Rows), a.Width),
		fits("add rows: destination", a.Dst, int(last)+1, a.Width))
}

func checkCopies(shape gpu.KVShape, copies []gpu.KVCopy) error {
	for _, c := range copies {
		err := first(
			inRange("copy: page", int(c.From), shape.Pages),
			inRange("copy: page", int(c.To), shape.Pages),
			inRange("copy: token count", c.Tokens, shape.PageSize+1))
		if err != nil {
			return err
		}
	}
	return nil
}

func checkRange(shape gpu.KVShape, r gpu.KVRange, data []byte) error {
	if r.First < 0 || r.Count < 0 || r.First > shape.PageSize-r.Count {
		return fmt.Errorf("slots [%d, %d) of a page of %d",
			r.First, r.First+r.Count, shape.PageSize)
	}
	if len(data) != r.Count*shape.TokenBytes() {
		return fmt.Errorf("%d bytes for %d slots of %d", len(data), r.Count, shape.TokenBytes())
	}
	return first(
		inRange("layer", r.Layer, shape.Layers),
		inRange("page", r.Page, shape.Pages))
}

func checkShape(s gpu.KVShape) error {
	if s.Layers <= 0 || s.Pages <= 0 || s.PageSize <= 0 || s.KVHeads <= 0 || s.HeadDim <= 0 {
		return fmt.Errorf("page pool with a size that is not positive: %+v", s)
	}
	if s.DType >= plainTypes && s.DType != gpu.Q8_0 {
		return fmt.Errorf("page pool of %v: the cpu device keeps keys and values in f32, f16, "+
			"bf16 or q8_0", s.DType)
	}
	if length, _ := s.DType.Block(); s.HeadDim%length != 0 {
		return fmt.Errorf("page pool of %v: its blocks are %d numbers, heads have %d",
			s.DType, length, s.HeadDim)
	}
	limit := maxElements
	for _, n := range []int{s.Layers, s.Pages, s.PageSize + 15, s.KVHeads, s.HeadDim + 15, 2} {
		if limit /= n; limit == 0 {
			return fmt.Errorf("page pool %+v: %w", s, gpu.ErrOutOfMemory)
		}
	}
	return nil
}
