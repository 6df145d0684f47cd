package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// Argmax implements gpu.Chooser: of each row one number comes to the host.
func (d *Device) Argmax(dst []int32, x gpu.Buffer, width int) error {
	rows := len(dst)
	if width < 1 || rows*width > x.Elements() {
		return fmt.Errorf("argmax of %d rows of %d numbers in a buffer of %d", rows, width,
			x.Elements())
	}
	if rows == 0 {
		return nil
	}
	defer runtime.KeepAlive(x) // finish frees what nothing refers to
	from, t, err := d.numbers(x)
	if err != nil {
		return err
	}
	to, err := d.scratch.take(d, chosen, int64(4*rows))
	if err != nil {
		return err
	}
	if err := d.queueBehind(0, func(*arena) kernels.Launch {
		return kernels.Argmax{Dst: uint64(to), X: from, Rows: rows, Width: width}.Launch(t)
	}); err != nil {
		return err
	}
	data, err := d.bring(to, 4*rows)
	for i := range dst[:len(data)/4] {
		dst[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return err
}

// TopK implements gpu.Chooser. What it gives comes to the host in one copy.
func (d *Device) TopK(k gpu.TopKArgs) error {
	if err := k.Check(); err != nil || len(k.Temperatures) == 0 {
		return err
	}
	defer runtime.KeepAlive(k.X)
	from, t, err := d.numbers(k.X)
	if err != nil {
		return err
	}
	rows := len(k.Temperatures)
	bytes := 4 * rows * (2*k.K + 1)
	to, err := d.scratch.take(d, chosen, int64(bytes))
	if err != nil {
		return err
	}
	if bytes > readBytes {
		return fmt.Errorf("%w: the best %d numbers of %d rows are more than %d bytes",
			driver.ErrRefused, k.K, rows, readBytes)
	}
	inverse := make([]int32, rows)
	for i, temperature := range k.Temperatures {
		inverse[i] = int32(math.Float32bits(1 / temperature))
	}
	values, sums := 4*rows*k.K, 8*rows*k.K
	if err := d.queueBehind(room(rows), func(a *arena) kernels.Launch {
		return kernels.TopK{Indices: uint64(to), Values: uint64(to) + uint64(values),
			Sums: uint64(to) + uint64(sums), X: from, Inverse: a.put(inverse), Rows: rows,
			Width: k.Width, K: k.K}.Launch(t)
	}); err != nil {
		return err
	}
	data, err := d.bring(to, bytes)
	if err != nil {
		return err
	}
	for i := range k.Places {
		k.Places[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
	}
	widen(k.Values, gpu.F32, data[values:])
	widen(k.Sums, gpu.F32, data[sums:])
	return nil
}

// queueBehind queues a kernel that leaves the numbers of the last product where they are.
func (d *Device) queueBehind(bytes int, launch func(*arena) kernels.Launch) error {
	sums := d.sums
	a, err := d.arena(bytes)
	if err != nil {
		return err
	}
	a.queue(launch(a))
	d.sums = sums
	return nil
}
