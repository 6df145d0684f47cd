package cpu

import (
	"encoding/binary"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// matrix is a weight: neighbouring parts of one type are one packed.
type matrix struct {
	rows, cols int
	parts      []*packed
}

func (m *matrix) Rows() int { return m.rows }
func (m *matrix) Cols() int { return m.cols }

// packed is output rows [first, first+rows) of a weight, in panels of panelRows rows; the last
// panel is filled up with zeros. A panel that is not quantised is [cols][panelRows] in the type it
// was stored in, or in pairs as dotMicro has them; quantised ones are in pack_quant.go.
type packed struct {
	first, rows, cols int
	dtype             gpu.DType
	pairs             bool
	memory            *memory
}

// panels counts them.
func (m *packed) panels() int { return (m.rows + panelRows - 1) / panelRows }

// kind is what tile kernels see in panels that are not quantised, steps how many steps of k.
func (m *packed) kind() tileKind {
	if m.pairs {
		return kindPairs
	}
	return tileKind(m.dtype)
}

func (m *packed) steps() int {
	if m.pairs {
		return (m.cols + 1) / 2
	}
	return m.cols
}

// pairPlace is where k lies in a column of a panel of pairs that begins at a number of pairs.
func pairPlace(column, k int) int { return 2*(column+k/2*panelRows) + 1 - k%2 }

// stepBytes is the distance from one k to the next of a panel that is neither quantised nor in
// pairs.
func (m *packed) stepBytes() int { return panelRows * m.dtype.Bytes() }

// panelBytes is the distance from one panel to the next.
func (m *packed) panelBytes() int {
	if m.dtype.Quantised() {
		return quantPanelBytes(m.dtype, m.cols)
	}
	if m.pairs {
		return m.steps() * 2 * m.stepBytes()
	}
	return m.cols * m.stepBytes()
}

// panel is the address of a panel.
func (m *packed) panel(i int) unsafe.Pointer { return m.memory.at(i * m.panelBytes()) }

// Pack implements gpu.Memory.
func (d *Device) Pack(parts ...gpu.Tensor) (gpu.Matrix, error) {
	if err := checkPack(parts); err != nil {
		return nil, err
	}
	m := &matrix{cols: parts[0].Cols}
	for from := 0; from < len(parts); {
		p := &packed{first: m.rows, cols: m.cols, dtype: parts[from].DType}
		p.pairs = p.dtype == gpu.BF16 && d.micro.roundPairs != nil
		to := from
		for ; to < len(parts) && parts[to].DType == p.dtype; to++ {
			p.rows += parts[to].Rows
		}
		p.memory = d.store.take(p.panels() * p.panelBytes())
		d.packing = packJob{m: p, parts: parts[from:to]}
		d.pool.run(p.panels(), &d.packing)
		m.parts = append(m.parts, p)
		m.rows += p.rows
		from = to
	}
	d.packing = packJob{}
	return m, nil
}

// packJob fills one panel a task.
type packJob struct {
	m     *packed
	parts []gpu.Tensor
}

func (j *packJob) do(_, panel int) {
	for lane := range panelRows {
		row := panel*panelRows + lane
		if row >= j.m.rows {
			return
		}
		part := 0
		for row >= j.parts[part].Rows {
			row -= j.parts[part].Rows
			part++
		}
		bytes := j.m.dtype.RowBytes(j.m.cols)
		data := j.parts[part].Data[row*bytes:][:bytes]
		at := panel*j.m.cols*panelRows + lane
		switch {
		case j.m.dtype.Quantised():
			j.m.placeRow(panel, lane, data)
		case j.m.pairs:
			j.m.placePairs(panel, lane, data)
		case j.m.dtype == gpu.F32:
			dst := numbers[uint32](j.m.memory)[at:]
			for k := range j.m.cols {
				dst[k*panelRows] = binary.LittleEndian.Uint32(data[4*k:])
			}
		default:
			dst := numbers[uint16](j.m.memory)[at:]
			for k := range j.m.cols {
				dst[k*panelRows] = binary.LittleEndian.Uint16(data[2*k:])
			}
		}
	}
}

// placePairs writes a row of BF16 to its lane of a panel.
func (m *packed) placePairs(panel, lane int, data []byte) {
	dst := numbers[uint32](m.memory)[panel*m.steps()*panelRows+lane:]
	for k := range m.cols / 2 {
		pair := binary.LittleEndian.Uint32(data[4*k:])
		dst[k*panelRows] = pair<<16 | pair>>16
	}
	if m.cols%2 == 1 {
		last := uint32(binary.LittleEndian.Uint16(data[2*(m.cols-1):]))
		dst[m.cols/2*panelRows] = last<<16 | padWeight
	}
}

// part is the packed that holds an output row, and the row's number in it.
func (m *matrix) part(row int) (*packed, int) {
	i := 0
	for row >= m.parts[i].first+m.parts[i].rows {
		i++
	}
	return m.parts[i], row - m.parts[i].first
}

// row writes one row of the weight, widened and scaled, to dst.
func (m *matrix) row(dst []float32, row int, scale float32) {
	p, row := m.part(row)
	at := row/panelRows*m.cols*panelRows + row%panelRows
	switch {
	case p.dtype.Quantised():
		p.numbers(dst, row)
		for k := range dst {
			dst[k] = float32(dst[k] * scale)
		}
	case p.dtype == gpu.F32:
		src := p.memory.floats()[at:]
		for k := range dst {
			dst[k] = src[k*panelRows] * scale
		}
	case p.dtype == gpu.F16:
		src := numbers[uint16](p.memory)[at:]
		for k := range dst {
			dst[k] = halfToFloat(src[k*panelRows]) * scale
		}
	case p.pairs:
		src, at := numbers[uint16](p.memory), row/panelRows*p.steps()*panelRows+row%panelRows
		for k := range dst {
			dst[k] = bfloatToFloat(src[pairPlace(at, k)]) * scale
		}
	case p.dtype == gpu.BF16:
		src := numbers[uint16](p.memory)[at:]
		for k := range dst {
			dst[k] = bfloatToFloat(src[k*panelRows]) * scale
		}
	}
}
