package cpu

import (
	"encoding/binary"
	"math"

	"github.com/kvrelay/engine/gpu"
)

// Twin is the device that says what each kernel means: one thread, plain loops over plain arrays,
// no tiles. It is slow, and right by reading. Every other device of the numerics class fma gives
// its bits (the bit patterns of NaNs aside).
type Twin struct {
	activations
	class numericsClass
}

// NewTwin returns the reference device of a numerics class of this package.
func NewTwin(numerics string) *Twin { return &Twin{class: classOf(numerics)} }

// Name implements gpu.Device.
func (*Twin) Name() string { return "cpu reference" }

// Numerics implements gpu.Device.
func (t *Twin) Numerics() string { return t.class.String() }

// NumericsOf is the class of weights of some types, as gpu.Device says.
func (t *Twin) NumericsOf(types []gpu.DType) string { return t.class.of(types) }

// Close implements gpu.Device.
func (*Twin) Close() error { return nil }

// twinMatrix is a weight in float32, row-major, and the blocks of its quantised rows.
type twinMatrix struct {
	rows, cols int
	data       []float32
	blocks     []*twinBlocks // by row; nil where it is not quantised
	types      []gpu.DType   // by row
	planes     []twinPlanes  // by row; nil where they are not needed
}

func (m *twinMatrix) Rows() int { return m.rows }
func (m *twinMatrix) Cols() int { return m.cols }

func (m *twinMatrix) row(i int) []float32 { return m.data[i*m.cols:][:m.cols] }

// Pack implements gpu.Memory.
func (t *Twin) Pack(parts ...gpu.Tensor) (gpu.Matrix, error) {
	if err := checkPack(parts); err != nil {
		return nil, err
	}
	m := &twinMatrix{cols: parts[0].Cols}
	for _, part := range parts {
		m.rows += part.Rows
		for row := range part.Rows {
			m.add(part.DType, part.Data[row*part.DType.RowBytes(part.Cols):])
			if m.planes = append(m.planes, nil); t.class.tdp && !part.DType.Quantised() {
				m.planes[len(m.planes)-1] = weightPlanes(part.DType, m.row(len(m.planes)-1))
			}
		}
	}
	return m, nil
}

// add appends a row.
func (m *twinMatrix) add(dtype gpu.DType, data []byte) {
	var blocks *twinBlocks
	if dtype.Quantised() {
		blocks = newTwinBlocks(dtype, data[:dtype.RowBytes(m.cols)])
	}
	m.blocks, m.types = append(m.blocks, blocks), append(m.types, dtype)
	for k := range m.cols {
		if blocks != nil {
			m.data = append(m.data, blocks.number(k))
		} else {
			m.data = append(m.data, element(dtype, data, k))
		}
	}
}

// element widens element i of little-endian stored numbers; every f16 and bf16 is a float32.
func element(d gpu.DType, data []byte, i int) float32 {
	switch d {
	case gpu.F16:
		return halfToFloat(binary.LittleEndian.Uint16(data[2*i:]))
	case gpu.BF16:
		return bfloatToFloat(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

// bfloatToFloat widens a bfloat16, the upper half of a float32.
func bfloatToFloat(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// halfToFloat widens an IEEE binary16, subnormals and infinities included.
func halfToFloat(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent, mantissa := uint32(h>>10&31), uint32(h&1023)
	switch exponent {
	case 0:
		f := float32(mantissa) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	case 31:
		if mantissa != 0 {
			mantissa |= 1 << 9 // the processor's own conversion quiets a NaN too
		}
		return math.Float32frombits(sign | 0x7f800000 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
}

// Embed implements gpu.Kernels.
func (*Twin) Embed(dst gpu.Buffer, table gpu.Matrix, tokens []int32, scale float32) error {
	if err := checkEmbed(dst, table, tokens); err != nil {
		return err
	}
	m, out := table.(*twinMatrix), floats(dst)
	for r, token := range tokens {
		for k, v := range m.row(int(token)) {
			out[r*m.cols+k] = v * scale
		}
	}
	return nil
}

// Norm implements gpu.Kernels.
func (*Twin) Norm(a gpu.NormArgs) error {
	a, err := normalised(a)
	if err != nil {
		return err
	}
	x, dst, weight := floats(a.X), floats(a.Dst), floats(a.Weight)
	for r := range a.Rows {
		for g := range a.Groups {
			at := r*a.Stride + a.Offset + g*a.Dim
			var lanes [normLanes]float64
			sumSquares(&lanes, x[at:][:a.Dim])
			inverse := inverseRoot(&lanes, a.Dim, a.Eps)
			scaleWeighted(dst[at:][:a.Dim], x[at:][:a.Dim], weight, norm{
				inverse, a.WeightOffset, a.Accumulate})
		}
	}
	return nil
}

// MatMul implements gpu.Kernels.
func (t *Twin) MatMul(a gpu.MatMulArgs) error {
	if err := checkMatMul(a); err != nil {
		return err
	}
	w, x, dst := a.W.(*twinMatrix), floats(a.X), floats(a.Dst)
	for r := range a.Rows {
		row, planes := x[r*w.cols:][:w.cols], [plainTypes]twinPlanes{}
		for o := range w.rows {
			var sum float32
			if a.Accumulate {
				sum = dst[r*w.rows+o]
			} else if a.Bias != nil {
				sum = floats(a.Bias)[o]
			}
			if w.planes[o] == nil {
				dst[r*w.rows+o] = t.product(w, o, row, sum)
				continue
			}
			dtype := w.types[o]
			if planes[dtype] == nil {
				planes[dtype] = activationPlanes(dtype, row)
			}
			dst[r*w.rows+o] = tdpSum(tdpForms[dtype].products, planes[dtype], w.planes[o], sum)
		}
	}
	return nil
}

// product adds a row times output o of a weight to sum, by FMAs or integers.
func (t *Twin) product(w *twinMatrix, o int, row []float32, sum float32) float32 {
	if b := w.blocks[o]; b != nil && t.class.int8 {
		return b.product(row, sum)
	}
	if t.class.bf16 && w.types[o] == gpu.BF16 {
		return bfloatSum(row, w.row(o), sum)
	}
	for k, v := range w.row(o) {
		sum = fma32(row[k], v, sum)
	}
	return sum
}

// GLU implements gpu.Kernels.
func (*Twin) GLU(a gpu.GLUArgs) error {
	if err := checkGLU(a); err != nil {
		return err
	}
	src, dst := floats(a.GateUp), floats(a.Dst)
	for r := range a.Rows {
		gate, up := src[2*r*a.Width:][:a.Width], src[(2*r+1)*a.Width:][:a.Width]
		if a.Activation == gpu.GELUTanh {
			gateGELU(dst[r*a.Width:], gate, up)
		} else {
			gateSiLU(dst[r*a.Width:], gate, up)
		}
	}
	return nil
}

// Gather implements gpu.Kernels.
func (activations) Gather(dst, src gpu.Buffer, rows []int32, width int) error {
	if err := checkGather(dst, src, rows, width); err != nil {
		return err
	}
	for i, r := range rows {
		copy(floats(dst)[i*width:][:width], floats(src)[int(r)*width:])
	}
	return nil
}

// AddRows implements gpu.Kernels.
func (activations) AddRows(a gpu.AddRowsArgs) error {
	if err := checkAddRows(a); err != nil {
		return err
	}
	dst, x := floats(a.Dst), floats(a.X)
	for i, r := range a.Rows {
		row, factor := dst[int(r)*a.Width:][:a.Width], a.Factors[i]
		for k, v := range x[i*a.Width:][:a.Width] {
			row[k] += float32(v * factor)
		}
	}
	return nil
}
