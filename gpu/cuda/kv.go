package cuda

import (
	"fmt"
	"runtime"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// kv is a page pool: one allocation, laid out as package kernels says.
type kv struct {
	shape gpu.KVShape
	at    driver.Pointer
}

// Shape implements gpu.KV.
func (k *kv) Shape() gpu.KVShape { return k.shape }

// layer is where the pages of a layer start.
func (k *kv) layer(i int) uint64 {
	return uint64(k.at) + uint64(i)*uint64(kernels.LayerBytes(k.shape))
}

// page is where a page of a layer starts.
func (k *kv) page(layer, page int) uint64 {
	return k.layer(layer) + uint64(page)*uint64(kernels.PageBytes(k.shape))
}

// AllocKV implements gpu.Memory.
func (d *Device) AllocKV(shape gpu.KVShape) (gpu.KV, error) {
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	bytes := kernels.PoolBytes(shape)
	p, err := d.alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("page pool: %w", err)
	}
	pool := &kv{shape: shape, at: p}
	owned(d, pool, p)
	return pool, nil
}

func checkShape(s gpu.KVShape) error {
	if s.Layers <= 0 || s.Pages <= 0 || s.PageSize <= 0 || s.KVHeads <= 0 || s.HeadDim <= 0 {
		return fmt.Errorf("page pool with a size that is not positive: %+v", s)
	}
	if s.DType > gpu.BF16 {
		return fmt.Errorf("page pool of %v: the cuda device keeps keys and values in f32, f16 or "+
			"bf16", s.DType)
	}
	const most = 1 << 46
	limit := most
	for _, n := range []int{s.Layers, s.Pages, s.PageSize, s.KVHeads, s.HeadDim, 8} {
		if limit /= n; limit == 0 {
			return fmt.Errorf("page pool %+v: %w", s, gpu.ErrOutOfMemory)
		}
	}
	return nil
}

// CopyKV implements gpu.Kernels. No launch both reads and writes a page.
func (d *Device) CopyKV(pool gpu.KV, copies []gpu.KVCopy) error {
	k := pool.(*kv)
	if err := cpu.CheckCopies(k.shape, copies); err != nil {
		return err
	}
	for len(copies) > 0 {
		n := apart(copies)
		a, err := d.arena(room(kernels.CopyWords * n))
		if err != nil {
			return err
		}
		words := kernels.AppendCopies(nil, copies[:n])
		a.queue(kernels.CopyPages{Pool: uint64(k.at), Copies: a.put(words), Count: n,
			Shape: k.shape}.Launch())
		for _, c := range copies[:n] {
			d.outgoing.pageOverwritten(k, int(c.To))
		}
		copies = copies[n:]
	}
	return d.Flush() // A PackKV that follows sees them.
}

// apart is how many of the first copies may run side by side.
func apart(copies []gpu.KVCopy) int {
	read, written := map[int32]bool{}, map[int32]bool{}
	for i, c := range copies {
		if written[c.From] || written[c.To] || read[c.To] || c.From == c.To {
			return max(i, 1)
		}
		read[c.From], written[c.To] = true, true
	}
	return len(copies)
}

// PackKV implements gpu.Kernels: it sees what kernels wrote that were called before the last Flush
// or Sync. A layer that was staged comes from pinned memory.
func (d *Device) PackKV(pool gpu.KV, r gpu.KVRange, dst []byte) error {
	k := pool.(*kv)
	if err := cpu.CheckRange(k.shape, r, dst); err != nil {
		return err
	}
	if len(dst) == 0 {
		return nil
	}
	defer runtime.KeepAlive(k)
	if done, err := d.outgoing.take(d, k, r, dst); done || err != nil {
		return err
	}
	return d.outgoing.direct(d, k, r, dst)
}

// UnpackKV implements gpu.Kernels. What it wrote is there when it returns.
func (d *Device) UnpackKV(pool gpu.KV, r gpu.KVRange, src []byte) error {
	if err := cpu.CheckRange(pool.Shape(), r, src); err != nil {
		return err
	}
	return d.UnpackRanges(pool, []gpu.KVRange{r}, src)
}
