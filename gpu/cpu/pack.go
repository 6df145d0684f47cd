package cpu

import (
	"encoding/binary"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// matrix is a weight in panels of panelRows output rows, [panel][Cols][panelRows], in the type it
// was stored in. The last panel is filled up with zeros.
type matrix struct {
	rows, cols int
	dtype      gpu.DType
	memory     *memory
}

func (m *matrix) Rows() int { return m.rows }
func (m *matrix) Cols() int { return m.cols }

// panels counts them.
func (m *matrix) panels() int { return (m.rows + panelRows - 1) / panelRows }

// stepBytes is the distance from one k to the next.
func (m *matrix) stepBytes() int { return panelRows * m.dtype.Bytes() }

// panelBytes is the distance from one panel to the next.
func (m *matrix) panelBytes() int { return m.cols * m.stepBytes() }

// panel is the address of a panel.
func (m *matrix) panel(i int) unsafe.Pointer { return m.memory.at(i * m.panelBytes()) }

// Pack implements gpu.Memory.
func (d *Device) Pack(parts ...gpu.Tensor) (gpu.Matrix, error) {
	if err := checkPack(parts); err != nil {
		return nil, err
	}
	m := &matrix{cols: parts[0].Cols, dtype: parts[0].DType}
	for _, part := range parts {
		m.rows += part.Rows
	}
	m.memory = newMemory(m.panels() * m.panelBytes())
	d.packing = packJob{m: m, parts: parts}
	d.pool.run(m.panels(), &d.packing)
	d.packing = packJob{}
	return m, nil
}

// packJob fills one panel a task.
type packJob struct {
	m     *matrix
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
		bytes := j.m.cols * j.m.dtype.Bytes()
		data := j.parts[part].Data[row*bytes:][:bytes]
		at := panel*j.m.cols*panelRows + lane
		if j.m.dtype == gpu.F32 {
			dst := numbers[uint32](j.m.memory)[at:]
			for k := range j.m.cols {
				dst[k*panelRows] = binary.LittleEndian.Uint32(data[4*k:])
			}
		} else {
			dst := numbers[uint16](j.m.memory)[at:]
			for k := range j.m.cols {
				dst[k*panelRows] = binary.LittleEndian.Uint16(data[2*k:])
			}
		}
	}
}

// row writes one row of the weight, widened and scaled, to dst.
func (m *matrix) row(dst []float32, row int, scale float32) {
	at := row/panelRows*m.cols*panelRows + row%panelRows
	switch m.dtype {
	case gpu.F32:
		src := m.memory.floats()[at:]
		for k := range dst {
			dst[k] = src[k*panelRows] * scale
		}
	case gpu.F16:
		src := numbers[uint16](m.memory)[at:]
		for k := range dst {
			dst[k] = halfToFloat(src[k*panelRows]) * scale
		}
	case gpu.BF16:
		src := numbers[uint16](m.memory)[at:]
		for k := range dst {
			dst[k] = bfloatToFloat(src[k*panelRows]) * scale
		}
	}
}
