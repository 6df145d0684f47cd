package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// Options configure Open.
type Options struct {
	// Type is how weights and the rows between kernels are stored: BF16 or F16.
	Type gpu.DType
	// StagingBytes bounds the pinned memory in which layers on their way to another machine wait.
	// 0 means DefaultStagingBytes.
	StagingBytes int
	// NoGraphs launches every kernel by itself.
	NoGraphs bool
}

// Limits of a device.
const (
	// DefaultStagingBytes holds about eight layers of 2048 tokens of Llama-3.1-8B.
	DefaultStagingBytes = 64 << 20
	// leastMajor is the oldest compute capability the kernels are built for.
	leastMajor = 8
	// arenas is how many batches of work may be with the device at once.
	arenas = 4
	// arenaBytes holds what one batch of work reads from the host: positions, slots, page tables.
	arenaBytes = 4 << 20
	// readBytes is the pinned memory through which results and weights pass, in pieces.
	readBytes = 8 << 20
)

// Device is one GPU. Kernels are queued until Sync, Read or Flush gives them all to the thread that
// drives the GPU. One goroutine at a time calls its kernels; PackKV, UnpackKV and StageKV may be
// called from others beside it.
type Device struct {
	driver  driver.Driver
	options Options
	info    driver.Info
	module  driver.Module
	// functions are the kernels, by kernels.ID.
	functions []driver.Function
	compute   driver.Stream

	jobs chan *job
	idle sync.WaitGroup // the driving thread
	lost atomic.Pointer[error]

	arenas  []*arena
	current *arena // that kernels are queued in; nil: none
	failed  error  // the first error since the last Sync
	flushed *job   // the last one given to the thread
	sums    sums   // of the last product, until another kernel is queued

	scratch  scratch
	pinned   []byte // readBytes, of the goroutine that calls kernels
	garbage  garbage
	graphs   graphs
	outgoing outgoing
	lanes    lanes
}

// Open starts the device behind a driver. The driver is the device's afterwards, also on an error.
func Open(d driver.Driver, o Options) (*Device, error) {
	if o.Type != gpu.BF16 && o.Type != gpu.F16 {
		return nil, fmt.Errorf("cuda device: rows and weights of %v; bf16 and f16 are possible",
			o.Type)
	}
	if o.StagingBytes == 0 {
		o.StagingBytes = DefaultStagingBytes
	}
	device := &Device{driver: d, options: o, jobs: make(chan *job, arenas)}
	started := make(chan error, 1)
	device.idle.Go(func() { device.drive(started) })
	if err := <-started; err != nil {
		close(device.jobs)
		device.idle.Wait()
		return nil, fmt.Errorf("open the cuda device: %w", err)
	}
	return device, nil
}

// start runs on the driving thread.
func (d *Device) start() error {
	var err error
	if d.info, err = d.driver.Open(); err != nil {
		return err
	}
	if d.info.Major < leastMajor {
		return fmt.Errorf("%w: %s has compute capability %d.%d; %d.0 and later can be used",
			driver.ErrRefused, d.info.Name, d.info.Major, d.info.Minor, leastMajor)
	}
	return errors.Join(d.load(), d.reserve())
}

// load makes the kernels ready.
func (d *Device) load() error {
	var err error
	if d.module, err = d.driver.Load([]byte(kernels.PTX())); err != nil {
		return fmt.Errorf("load the kernels: %w", err)
	}
	const withoutAsking = 48 << 10
	for _, k := range kernels.Table() {
		f, err := d.driver.Function(d.module, k.Name)
		if err != nil {
			return err
		}
		if shared := min(k.Shared, d.info.SharedPerBlock); shared > withoutAsking {
			if err := d.driver.SetShared(f, shared); err != nil {
				return fmt.Errorf("kernel %s: %d bytes of shared memory: %w", k.Name, shared, err)
			}
		}
		d.functions = append(d.functions, f)
	}
	return nil
}

// reserve makes streams, arenas and pinned memory.
func (d *Device) reserve() error {
	var err error
	if d.compute, err = d.driver.NewStream(); err != nil {
		return err
	}
	for range arenas {
		a, err := d.newArena()
		if err != nil {
			return err
		}
		d.arenas = append(d.arenas, a)
	}
	if d.pinned, err = d.driver.AllocHost(readBytes); err != nil {
		return err
	}
	return d.outgoing.open(d)
}

// Name implements gpu.Device.
func (d *Device) Name() string {
	return fmt.Sprintf("cuda %s, %d.%d, %v", d.info.Name, d.info.Major, d.info.Minor,
		d.options.Type)
}

// Info says what the GPU is.
func (d *Device) Info() driver.Info { return d.info }

// Numerics implements gpu.Device: sums in float32, rows rounded to the type between kernels, in the
// order of this package's kernels and of the vendor's library of products.
func (d *Device) Numerics() string { return "cuda-" + d.options.Type.String() }

// Precision is the type to which rows are rounded between kernels.
func (d *Device) Precision() gpu.DType { return d.options.Type }

// RowsVary implements what gpu.Device says of it: the vendor's library chooses a kernel by how many
// rows a product has, and another kernel may add in another order. This package's own kernels do
// not vary.
func (d *Device) RowsVary() bool { return true }

// SlotsApart says that complete slots of a page may be packed while others are written.
func (d *Device) SlotsApart() bool { return true }

// Available is the device's free memory and all of it, in bytes.
func (d *Device) Available() (free, total int64, err error) {
	err = d.bound(func() error {
		free, total, err = d.driver.Available()
		return err
	})
	return free, total, err
}

// Close implements gpu.Device.
func (d *Device) Close() error {
	err := d.Sync()
	close(d.jobs)
	d.idle.Wait()
	return err
}

// stop runs on the driving thread, as the last.
func (d *Device) stop() {
	// What fails here is the device's end, not an error of anybody's work.
	_ = d.driver.FreeHost(d.pinned)
	for _, a := range d.arenas {
		_ = d.driver.FreeHost(a.host)
	}
	d.outgoing.close(d)
	_ = d.driver.Close()
}
