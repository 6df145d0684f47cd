package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// job is a batch of work for the driving thread.
type job struct {
	arena *arena
	// then runs after the arena's work was given to the stream; nil for none.
	then func() error
	// given is closed when all of it was given to the stream, and err set: an event of it may then
	// be waited for.
	given chan struct{}
	err   error
}

// drive is the thread that gives work to the compute stream. It alone does.
func (d *Device) drive(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the context that is current on it
	err := d.start()
	started <- err
	for j := range d.jobs {
		if lost := d.lost.Load(); lost != nil {
			j.err = *lost
		} else {
			j.err = d.give(j)
			d.note(j.err)
		}
		close(j.given)
	}
	d.stop()
}

// note remembers that the device is gone: every later call answers the same.
func (d *Device) note(err error) {
	if errors.Is(err, gpu.ErrLost) {
		lost := fmt.Errorf("%w; the process must be restarted to use it again", err)
		d.lost.CompareAndSwap(nil, &lost)
	}
}

func (d *Device) give(j *job) error {
	if j.arena != nil {
		if err := d.runArena(j.arena); err != nil {
			return err
		}
	}
	if j.then != nil {
		return j.then()
	}
	return nil
}

// submit hands a job to the thread.
func (d *Device) submit(j *job) *job {
	j.given = make(chan struct{})
	d.jobs <- j
	return j
}

// onThread runs f on the driving thread behind all that was submitted, and waits for it.
func (d *Device) onThread(f func() error) error {
	j := d.submit(&job{then: f})
	<-j.given
	return j.err
}

// bound runs f on this goroutine with the device's context current: for calls that need not be in
// order with the kernels.
func (d *Device) bound(f func() error) error {
	if lost := d.lost.Load(); lost != nil {
		return *lost
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.driver.Bind(); err != nil {
		return err
	}
	err := f()
	d.note(err)
	return err
}

// Flush gives the kernels called so far to the device and does not wait for them. A PackKV or
// StageKV called afterwards, from any goroutine, sees what they wrote.
func (d *Device) Flush() error {
	a := d.current
	if a == nil {
		return d.failed
	}
	d.current = nil
	d.flushed = d.submit(&job{arena: a})
	a.job = d.flushed
	d.outgoing.follow(d.flushed)
	return d.failed
}

// Sync implements gpu.Memory.
func (d *Device) Sync() error { return d.finish(nil) }

// finish waits until the kernels called so far are done, and with them what `then` gives to the
// stream; nil for nothing.
func (d *Device) finish(then func() error) error {
	err := d.Flush()
	d.failed = nil
	if last := d.onThread(func() error {
		var err error
		if then != nil {
			err = then()
		}
		err = errors.Join(err, d.driver.Finish(d.compute))
		d.sweep()
		return err
	}); err == nil {
		err = last
	}
	for _, a := range d.arenas {
		if a.job != nil {
			if <-a.job.given; err == nil {
				err = a.job.err
			}
			a.job = nil
		}
	}
	return err
}

// arena is memory that a batch of work reads: positions, tokens, page tables. One copy takes all of
// it to the device before the work starts.
type arena struct {
	host   []byte // pinned
	device driver.Pointer
	used   int
	done   driver.Event // behind the work
	job    *job         // that took it last; nil: it is free
	ops    []op
	plans  []planned
	tables []table
	// product is the place in ops of a product that nothing has followed; -1: none.
	product int
}

func (d *Device) newArena() (*arena, error) {
	a := &arena{product: -1}
	var err error
	if a.host, err = d.driver.AllocHost(arenaBytes); err != nil {
		return nil, err
	}
	if a.device, err = d.driver.Alloc(arenaBytes); err != nil {
		return nil, err
	}
	a.done, err = d.driver.NewEvent(false)
	return a, err
}

// arena returns the one to queue work in, with room for so many bytes.
func (d *Device) arena(bytes int) (*arena, error) {
	d.sums = sums{}
	if lost := d.lost.Load(); lost != nil {
		return nil, *lost
	}
	if bytes > arenaBytes {
		return nil, fmt.Errorf("%w: a kernel reads %d bytes from the host, %d are possible",
			driver.ErrRefused, bytes, arenaBytes)
	}
	if d.current != nil && d.current.used+bytes > arenaBytes {
		if err := d.Flush(); err != nil {
			return nil, err
		}
	}
	if d.current == nil {
		if err := d.nextArena(); err != nil {
			return nil, err
		}
	}
	return d.current, nil
}

// nextArena takes one that the device is done with, the first where several are: then the addresses
// of like steps are equal, and their graphs too.
func (d *Device) nextArena() error {
	for _, a := range d.arenas {
		if a.job == nil {
			d.current = a
			a.reset()
			return nil
		}
	}
	oldest := d.arenas[0]
	d.arenas = append(d.arenas[1:], oldest)
	<-oldest.job.given
	err := oldest.job.err
	if err == nil {
		err = d.bound(func() error { return d.driver.Sync(oldest.done) })
	}
	if err != nil {
		d.failed = errors.Join(d.failed, err)
	}
	oldest.job = nil
	d.current = oldest
	oldest.reset()
	return d.failed
}

func (a *arena) reset() {
	a.used, a.product = 0, -1
	a.ops, a.plans, a.tables = a.ops[:0], a.plans[:0], a.tables[:0]
}

// arenaStep is the unit of an arena, so that addresses of like steps do not move with every token.
const arenaStep = 4 << 10

// room takes bytes of the arena: where the host writes them, and where kernels find them.
func (a *arena) room(bytes int) ([]byte, uint64) {
	at := a.used
	a.used += (bytes + arenaStep - 1) / arenaStep * arenaStep
	return a.host[at:][:bytes], uint64(a.device) + uint64(at)
}

// put takes numbers to the device.
func (a *arena) put(values []int32) uint64 {
	to, address := a.room(4 * len(values))
	ints(to, values)
	return address
}
