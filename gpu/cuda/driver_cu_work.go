//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/drv"
)

// The handles of cu are structs of the driver's pointer alone. We keep that as a number.

func cuStream(s driver.Stream) cu.Stream        { return *(*cu.Stream)(unsafe.Pointer(&s)) }
func cuEvent(e driver.Event) cu.Event           { return *(*cu.Event)(unsafe.Pointer(&e)) }
func cuModule(m driver.Module) cu.Module        { return *(*cu.Module)(unsafe.Pointer(&m)) }
func numberOf[H any](handle H) (number uintptr) { return *(*uintptr)(unsafe.Pointer(&handle)) }

// NewStream implements driver.Streams.
func (d *cuDriver) NewStream() (driver.Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return driver.Stream(numberOf(s)), translate("cuStreamCreate", err)
}

// FreeStream implements driver.Streams.
func (d *cuDriver) FreeStream(s driver.Stream) error {
	stream := cuStream(s)
	return translate("cuStreamDestroy", stream.Destroy())
}

// Finish implements driver.Streams.
func (d *cuDriver) Finish(s driver.Stream) error {
	return translate("cuStreamSynchronize", cuStream(s).Synchronize())
}

// Wait implements driver.Streams.
func (d *cuDriver) Wait(s driver.Stream, e driver.Event) error {
	return translate("cuStreamWaitEvent", cuStream(s).Wait(cuEvent(e), 0))
}

// NewEvent implements driver.Events.
func (d *cuDriver) NewEvent(timing bool) (driver.Event, error) {
	flags := cu.BlockingSyncEvent
	if !timing {
		flags |= cu.DisableTiming
	}
	e, err := cu.MakeEvent(flags)
	return driver.Event(numberOf(e)), translate("cuEventCreate", err)
}

// FreeEvent implements driver.Events.
func (d *cuDriver) FreeEvent(e driver.Event) error {
	event := cuEvent(e)
	return translate("cuEventDestroy", cu.DestroyEvent(&event))
}

// Record implements driver.Events.
func (d *cuDriver) Record(e driver.Event, s driver.Stream) error {
	return translate("cuEventRecord", cuEvent(e).Record(cuStream(s)))
}

// Sync implements driver.Events.
func (d *cuDriver) Sync(e driver.Event) error {
	return translate("cuEventSynchronize", cuEvent(e).Synchronize())
}

// Elapsed implements driver.Clock.
func (d *cuDriver) Elapsed(from, to driver.Event) (float64, error) {
	ms, err := cuEvent(from).Elapsed(cuEvent(to))
	return ms, translate("cuEventElapsedTime", err)
}

// notReady is the driver's code for work that is under way.
const notReady = 600

// Done implements driver.Clock.
func (d *cuDriver) Done(e driver.Event) (bool, error) {
	err := translate("cuEventQuery", cuEvent(e).Query())
	if code, ok := errors.AsType[*driver.Error](err); ok && code.Code == notReady {
		return false, nil
	}
	return err == nil, err
}

// Load implements driver.Modules.
func (d *cuDriver) Load(image []byte) (driver.Module, error) {
	m, err := cu.LoadData(string(image))
	return driver.Module(numberOf(m)), translate("cuModuleLoadData", err)
}

// Unload implements driver.Modules.
func (d *cuDriver) Unload(m driver.Module) error {
	return translate("cuModuleUnload", cuModule(m).Unload())
}

// Function implements driver.Modules.
func (d *cuDriver) Function(m driver.Module, name string) (driver.Function, error) {
	f, err := cuModule(m).Function(name)
	if err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, translate("cuModuleGetFunction", err))
	}
	return driver.Function(numberOf(f)), nil
}

// SetShared implements driver.Modules.
func (d *cuDriver) SetShared(f driver.Function, bytes int) error { return drv.SetShared(f, bytes) }

// Launch implements driver.Launcher.
func (d *cuDriver) Launch(s driver.Stream, launches ...driver.Launch) error {
	d.launching.Lock()
	defer d.launching.Unlock()
	return d.launcher.Launch(s, launches...)
}

// BeginCapture implements driver.Graphs.
func (d *cuDriver) BeginCapture(s driver.Stream) error { return drv.BeginCapture(s) }

// EndCapture implements driver.Graphs.
func (d *cuDriver) EndCapture(s driver.Stream) (driver.Graph, error) { return drv.EndCapture(s) }

// Replay implements driver.Graphs.
func (d *cuDriver) Replay(g driver.Graph, s driver.Stream) error { return drv.Replay(g, s) }

// FreeGraph implements driver.Graphs.
func (d *cuDriver) FreeGraph(g driver.Graph) error { return drv.FreeGraph(g) }

// Share implements driver.Sharing.
func (d *cuDriver) Share(p driver.Pointer) (driver.ShareHandle, error) { return drv.Share(p) }

// OpenShared implements driver.Sharing.
func (d *cuDriver) OpenShared(h driver.ShareHandle) (driver.Pointer, error) {
	return drv.OpenShared(h)
}

// CloseShared implements driver.Sharing.
func (d *cuDriver) CloseShared(p driver.Pointer) error { return drv.CloseShared(p) }

// Reachable implements driver.Peers. It makes no context on the other device.
func (d *cuDriver) Reachable(identity driver.Identity) (bool, error) {
	count, err := cu.NumDevices()
	if err != nil {
		return false, translate("cuDeviceGetCount", err)
	}
	for ordinal := range count {
		peer, err := cu.GetDevice(ordinal)
		if err != nil {
			return false, translate("cuDeviceGet", err)
		}
		id, err := peer.UUID()
		if err != nil {
			return false, translate("cuDeviceGetUuid", err)
		}
		if driver.Identity(id) != identity {
			continue
		}
		if peer == d.device {
			return true, nil
		}
		can, err := d.device.CanAccessPeer(peer)
		return can != 0, translate("cuDeviceCanAccessPeer", err)
	}
	return false, nil
}

// Multiply implements driver.Products.
func (d *cuDriver) Multiply(p driver.Product, s driver.Stream) error {
	if d.noBlas != nil {
		return d.noBlas
	}
	err := d.products.Multiply(p, s)
	if !errors.Is(err, gpu.ErrLost) {
		return err
	}
	// The library has one code for a launch that the driver refused and for a device that is lost.
	// The driver answers all calls in the context with an error in the second case alone.
	if _, _, asked := d.Available(); asked == nil {
		return fmt.Errorf("%w, and the device goes on: %s", driver.ErrRefused, err)
	}
	return err
}
