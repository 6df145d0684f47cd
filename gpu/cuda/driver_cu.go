//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/drv"
)

// workspaceBytes is what cuBLAS may use beside its operands: NVIDIA's advice for Hopper.
const workspaceBytes = 32 << 20

// OpenDriver loads the driver and returns device number ordinal of it, not yet opened.
func OpenDriver(ordinal int) (*driver.Driver, error) {
	if _, err := drv.Load(); err != nil {
		return nil, err
	}
	count, err := cu.NumDevices()
	if err != nil {
		return nil, translate("cuDeviceGetCount", err)
	}
	if ordinal < 0 || ordinal >= count {
		return nil, fmt.Errorf("%w: number %d of %d", driver.ErrNoDevice, ordinal, count)
	}
	d := &cuDriver{ordinal: ordinal}
	return &driver.Driver{Devices: d, Memory: d, Host: d, Copies: d, Streams: d, Events: d,
		Clock: d, Modules: d, Launcher: d, Graphs: d, Sharing: d, Peers: d,
		Products: d}, nil
}

// Built says whether this binary can open a device.
func Built() bool { return true }

// cuDriver implements driver.Driver: with gorgonia.org/cu where that has the call, else with drv.
type cuDriver struct {
	ordinal   int
	device    cu.Device
	current   cu.CUContext
	launching sync.Mutex
	launcher  drv.Launcher
	products  *drv.Products
	workspace driver.Pointer
	noBlas    error // why there are no products
}

// translate turns an error of cu into ours. cu does not export the type of the driver's codes, but
// it is an integer.
func translate(call string, err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if v := reflect.ValueOf(e); v.Kind() == reflect.Int {
			return driver.Check(call, int(v.Int()))
		}
	}
	if err != nil {
		return fmt.Errorf("CUDA: %s: %w", call, err)
	}
	return nil
}

// Open implements driver.Devices.
func (d *cuDriver) Open() (info driver.Info, err error) {
	if d.device, err = cu.GetDevice(d.ordinal); err != nil {
		return info, translate("cuDeviceGet", err)
	}
	if d.current, err = d.device.RetainPrimaryCtx(); err != nil {
		return info, translate("cuDevicePrimaryCtxRetain", err)
	}
	if err = d.Bind(); err != nil {
		return info, err
	}
	info.Name, err = d.device.Name()
	if err != nil {
		return info, translate("cuDeviceGetName", err)
	}
	if id, err := d.device.UUID(); err == nil { // An old driver has none.
		info.Identity = driver.Identity(id)
	}
	for attribute, to := range map[cu.DeviceAttribute]*int{
		cu.ComputeCapabilityMajor: &info.Major, cu.ComputeCapabilityMinor: &info.Minor,
		cu.MultiprocessorCount: &info.Processors, sharedOptIn: &info.SharedPerBlock,
	} {
		if *to, err = d.device.Attribute(attribute); err != nil {
			return info, translate("cuDeviceGetAttribute", err)
		}
	}
	info.Memory, err = d.device.TotalMem()
	if err != nil {
		return info, translate("cuDeviceTotalMem", err)
	}
	info.Devices, _ = cu.NumDevices()
	info.DriverVersion = cu.Version()
	info.MatrixProducts, d.noBlas = d.openProducts()
	if d.noBlas != nil {
		info.MatrixProducts = d.noBlas.Error()
	}
	return info, nil
}

// sharedOptIn is CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, which cu does not name.
const sharedOptIn cu.DeviceAttribute = 97

func (d *cuDriver) openProducts() (string, error) {
	path, err := drv.LoadProducts()
	if err != nil {
		return "", err
	}
	if d.workspace, err = d.Alloc(workspaceBytes); err != nil {
		return "", err
	}
	d.products, err = drv.NewProducts(d.workspace, workspaceBytes)
	return path, err
}

// Bind implements driver.Devices.
func (d *cuDriver) Bind() error {
	return translate("cuCtxSetCurrent", cu.SetCurrentContext(d.current))
}

// Close implements driver.Devices.
func (d *cuDriver) Close() error {
	var err error
	if d.products != nil {
		err = errors.Join(d.products.Close(), d.Free(d.workspace))
	}
	return errors.Join(err,
		translate("cuDevicePrimaryCtxRelease", d.device.ReleasePrimaryCtx()))
}

// Alloc implements driver.Memory.
func (d *cuDriver) Alloc(bytes int64) (driver.Pointer, error) {
	p, err := cu.MemAlloc(bytes)
	return driver.Pointer(p), translate("cuMemAlloc", err)
}

// Free implements driver.Memory.
func (d *cuDriver) Free(p driver.Pointer) error {
	return translate("cuMemFree", cu.MemFree(cu.DevicePtr(p)))
}

// Available implements driver.Memory.
func (d *cuDriver) Available() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, translate("cuMemGetInfo", err)
}

// AllocHost implements driver.Host.
func (d *cuDriver) AllocHost(bytes int) ([]byte, error) { return drv.AllocHost(bytes) }

// FreeHost implements driver.Host.
func (d *cuDriver) FreeHost(b []byte) error { return drv.FreeHost(b) }

// Register implements driver.Host.
func (d *cuDriver) Register(b []byte) error { return drv.Register(b) }

// Unregister implements driver.Host.
func (d *cuDriver) Unregister(b []byte) error { return drv.Unregister(b) }

func host(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// CopyIn implements driver.Copies.
func (d *cuDriver) CopyIn(to driver.Pointer, from []byte, s driver.Stream) error {
	return translate("cuMemcpyHtoDAsync",
		cu.MemcpyHtoDAsync(cu.DevicePtr(to), host(from), int64(len(from)), cuStream(s)))
}

// CopyOut implements driver.Copies.
func (d *cuDriver) CopyOut(to []byte, from driver.Pointer, s driver.Stream) error {
	return translate("cuMemcpyDtoHAsync",
		cu.MemcpyDtoHAsync(host(to), cu.DevicePtr(from), int64(len(to)), cuStream(s)))
}

// CopyWithin implements driver.Copies.
func (d *cuDriver) CopyWithin(to, from driver.Pointer, bytes int64, s driver.Stream) error {
	return translate("cuMemcpyDtoDAsync",
		cu.MemcpyDtoDAsync(cu.DevicePtr(to), cu.DevicePtr(from), bytes, cuStream(s)))
}

// Fill implements driver.Copies.
func (d *cuDriver) Fill(to driver.Pointer, value byte, bytes int64, s driver.Stream) error {
	return translate("cuMemsetD8Async",
		cu.MemsetD8Async(cu.DevicePtr(to), value, bytes, cuStream(s)))
}
