package cuda

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// maxElements bounds one allocation: kernels count in int32.
const maxElements = 1 << 31

// buffer is rows between kernels, in the device's type.
type buffer struct {
	at       driver.Pointer
	elements int
}

// Elements implements gpu.Buffer.
func (b *buffer) Elements() int { return b.elements }

func at(b gpu.Buffer) uint64 {
	if b == nil {
		return 0
	}
	return uint64(b.(*buffer).at)
}

// garbage is memory that nothing refers to any more, freed when no work is under way.
type garbage struct {
	mu       sync.Mutex
	pointers []driver.Pointer
}

func (g *garbage) add(p driver.Pointer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pointers = append(g.pointers, p)
}

// sweep runs on the driving thread when all work is done.
func (d *Device) sweep() {
	d.garbage.mu.Lock()
	pointers := d.garbage.pointers
	d.garbage.pointers = nil
	d.garbage.mu.Unlock()
	for _, p := range pointers {
		_ = d.driver.Free(p) // The error of a lost device was or will be told by its work.
	}
}

// alloc returns zeroed memory that lives as long as what keeps it: call owned with that.
func (d *Device) alloc(bytes int64) (driver.Pointer, error) {
	var p driver.Pointer
	err := d.bound(func() (err error) {
		p, err = d.driver.Alloc(max(bytes, 1))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%d bytes on %s: %w", bytes, d.info.Name, err)
	}
	err = d.onThread(func() error {
		if err := d.driver.Fill(p, 0, max(bytes, 1), d.compute); err != nil {
			return err
		}
		return d.driver.Finish(d.compute)
	})
	if err != nil {
		d.garbage.add(p)
	}
	return p, err
}

// owned frees memory when the garbage collector finds its owner gone.
func owned[T any](d *Device, owner *T, p driver.Pointer) {
	runtime.AddCleanup(owner, d.garbage.add, p)
}

// Alloc implements gpu.Memory.
func (d *Device) Alloc(elements int) (gpu.Buffer, error) {
	if elements < 0 || elements > maxElements {
		return nil, fmt.Errorf("allocate %d elements: %w", elements, gpu.ErrOutOfMemory)
	}
	p, err := d.alloc(int64(elements) * int64(d.options.Type.Bytes()))
	if err != nil {
		return nil, err
	}
	b := &buffer{at: p, elements: elements}
	owned(d, b, p)
	return b, nil
}

// Write implements gpu.Memory.
func (d *Device) Write(dst gpu.Buffer, src []float32) error {
	if len(src) > dst.Elements() {
		return fmt.Errorf("write %d elements to a buffer of %d", len(src), dst.Elements())
	}
	size := d.options.Type.Bytes()
	for done := 0; done < len(src); {
		n := min(len(src)-done, arenaBytes/2/size)
		a, err := d.arena(n * size)
		if err != nil {
			return err
		}
		to, address := a.room(n * size)
		narrow(to, d.options.Type, src[done:][:n])
		a.ops = append(a.ops, op{to: driver.Pointer(at(dst) + uint64(done*size)),
			from: driver.Pointer(address), bytes: int64(n * size)})
		a.product = -1
		done += n
	}
	return nil
}

// Read implements gpu.Memory. The result of a product that nothing has followed comes in float32 as
// it was summed: logits are not rounded.
func (d *Device) Read(dst []float32, src gpu.Buffer, first int) error {
	if first < 0 || first > src.Elements()-len(dst) {
		return fmt.Errorf("read elements [%d, %d) of a buffer of %d",
			first, first+len(dst), src.Elements())
	}
	defer runtime.KeepAlive(src) // finish frees what nothing refers to
	from, t, err := d.numbers(src)
	if err != nil {
		return err
	}
	for done := 0; ; {
		n := min(len(dst)-done, readBytes/t.Bytes())
		part, err := d.bring(driver.Pointer(from)+driver.Pointer((first+done)*t.Bytes()),
			n*t.Bytes())
		if err != nil {
			return err
		}
		widen(dst[done:][:n], t, part)
		if done += n; done == len(dst) {
			return nil
		}
	}
}

// bring waits for the kernels called so far and gives memory of the device, up to readBytes of it,
// until the next call.
func (d *Device) bring(from driver.Pointer, bytes int) ([]byte, error) {
	part := d.pinned[:bytes]
	err := d.finish(func() error {
		if bytes == 0 {
			return nil
		}
		return d.driver.CopyOut(part, from, d.compute)
	})
	if err != nil {
		return nil, err
	}
	return part, nil
}

// sums are the float32 numbers of the product whose rows went to a buffer.
type sums struct{ of, at uint64 }

// numbers is where the numbers of a buffer are, and their type: float32 for what a product makes
// that nothing has followed.
func (d *Device) numbers(src gpu.Buffer) (uint64, gpu.DType, error) {
	if d.sums.at == 0 || d.sums.of != at(src) {
		wide, err := d.widenLast(src)
		if err != nil || wide == 0 {
			return at(src), d.options.Type, err
		}
		d.sums = sums{at(src), wide}
	}
	return d.sums.at, gpu.F32, nil
}

// widenLast lets the product that was queued last leave its sums in float32 too, if src is what it
// makes, and returns where; 0: it is not.
func (d *Device) widenLast(src gpu.Buffer) (uint64, error) {
	a := d.current
	if a == nil || a.product < 0 {
		return 0, nil
	}
	p := &a.ops[a.product].product
	if uint64(p.C) != at(src) || p.Beta != 0 {
		return 0, nil
	}
	wide, err := d.scratch.take(d, wideSums, int64(p.M)*int64(p.N)*4)
	if err != nil {
		return 0, err
	}
	p.C, p.Out = wide, driver.Float32
	a.queue(kernels.Convert{Dst: at(src), Src: uint64(wide), Count: p.M * p.N}.
		FromFloat(d.options.Type))
	return uint64(wide), nil
}

// The scratch memories, each for one purpose: work in the stream shares them in turn.
const (
	wideSums = iota
	attentionParts
	chosen       // by Argmax and TopK
	rotations    // and as many more as a model has schedules
	maxRotations = 8
	scratches    = rotations + maxRotations
)

// scratch is memory of kernels, grown as needed.
type scratch struct {
	at    [scratches]driver.Pointer
	bytes [scratches]int64
}

// take returns a scratch memory of at least so many bytes. Where it must grow, the old one is kept
// until the work that was queued with it is done.
func (s *scratch) take(d *Device, which int, bytes int64) (driver.Pointer, error) {
	if s.bytes[which] >= bytes {
		return s.at[which], nil
	}
	grown := bytes + bytes/2
	p, err := d.alloc(grown)
	if err != nil {
		return 0, err
	}
	if s.at[which] != 0 {
		d.garbage.add(s.at[which])
	}
	s.at[which], s.bytes[which] = p, grown
	return p, nil
}
