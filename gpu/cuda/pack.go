package cuda

import (
	"fmt"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// matrix is a weight, row-major in the device's type.
type matrix struct {
	at         driver.Pointer
	rows, cols int
}

// Rows implements gpu.Matrix.
func (m *matrix) Rows() int { return m.rows }

// Cols implements gpu.Matrix.
func (m *matrix) Cols() int { return m.cols }

// Pack implements gpu.Memory. Weights are rounded to the device's type, quantised ones from what
// their blocks stand for, and pass through pinned memory in pieces.
func (d *Device) Pack(parts ...gpu.Tensor) (gpu.Matrix, error) {
	if err := cpu.CheckPack(parts); err != nil {
		return nil, err
	}
	m := &matrix{cols: parts[0].Cols}
	for _, p := range parts {
		m.rows += p.Rows
	}
	size := d.options.Type.Bytes()
	if m.cols*size > readBytes/2 {
		return nil, fmt.Errorf("pack: rows of %d numbers; the cuda device takes %d",
			m.cols, readBytes/2/size)
	}
	var err error
	if m.at, err = d.alloc(int64(m.rows) * int64(m.cols) * int64(size)); err != nil {
		return nil, err
	}
	owned(d, m, m.at)
	u := uploader{device: d, to: m.at, halves: [2][]byte{d.pinned[:readBytes/2],
		d.pinned[readBytes/2:]}}
	for i := range parts {
		if err := u.part(&parts[i]); err != nil {
			return nil, err
		}
	}
	return m, u.end()
}

// uploader narrows rows into one half of the pinned memory while the other is copied.
type uploader struct {
	device *Device
	to     driver.Pointer
	halves [2][]byte
	jobs   [2]*job // that read the halves
	turn   int
	used   int
	row    []float32
}

func (u *uploader) part(t *gpu.Tensor) error {
	to, bytes := u.device.options.Type, t.DType.RowBytes(t.Cols)
	size := t.Cols * to.Bytes()
	for r := range t.Rows {
		if u.used+size > len(u.halves[u.turn]) {
			if err := u.send(); err != nil {
				return err
			}
		}
		row := t.Data[r*bytes:][:bytes]
		dst := u.halves[u.turn][u.used:][:size]
		if t.DType == to {
			copy(dst, row)
		} else {
			var err error
			if u.row, err = cpu.Widen(u.row[:0], t.DType, t.Cols, row); err != nil {
				return fmt.Errorf("pack: %w", err)
			}
			narrow(dst, to, u.row)
		}
		u.used += size
	}
	return nil
}

// send gives the half to the device and waits until the other may be written again.
func (u *uploader) send() error {
	d, to, half := u.device, u.to, u.halves[u.turn][:u.used]
	u.jobs[u.turn] = d.submit(&job{then: func() error {
		if err := d.driver.CopyIn(to, half, d.compute); err != nil {
			return err
		}
		return d.driver.Finish(d.compute)
	}})
	u.to += driver.Pointer(u.used)
	u.turn, u.used = 1-u.turn, 0
	return u.wait(u.turn)
}

func (u *uploader) wait(half int) error {
	j := u.jobs[half]
	if j == nil {
		return nil
	}
	<-j.given
	return j.err
}

func (u *uploader) end() error {
	if err := u.send(); err != nil {
		return err
	}
	return u.wait(1 - u.turn)
}
