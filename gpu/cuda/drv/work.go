//go:build cuda

package drv

// #include "drv.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// Launcher launches lists of kernels with one call, and keeps its memory for the next list. It is
// for one goroutine at a time.
type Launcher struct {
	kernels []C.engine_kernel
	cells   []C.uint64_t
}

// Launch implements driver.Launcher.
func (l *Launcher) Launch(s driver.Stream, launches ...driver.Launch) error {
	l.kernels, l.cells = l.kernels[:0], l.cells[:0]
	for i := range launches {
		w := &launches[i]
		if len(w.Params) > C.ENGINE_PARAMS {
			return fmt.Errorf("%w: a kernel with %d parameters", driver.ErrRefused, len(w.Params))
		}
		k := C.engine_kernel{function: C.uintptr_t(w.Function), shared: C.uint32_t(w.Shared),
			params: C.uint32_t(len(w.Params))}
		for d := range 3 {
			k.grid[d], k.block[d] = C.uint32_t(w.Grid[d]), C.uint32_t(w.Block[d])
		}
		l.kernels = append(l.kernels, k)
		for _, cell := range w.Params {
			l.cells = append(l.cells, C.uint64_t(cell))
		}
	}
	if len(l.kernels) == 0 {
		return nil
	}
	var failed C.int
	code := C.engine_launch(stream(s), &l.kernels[0], C.int(len(l.kernels)),
		unsafe.SliceData(l.cells), &failed)
	if code != 0 {
		return fmt.Errorf("kernel %d of %d: %w", int(failed)+1, len(launches),
			driver.Check("cuLaunchKernel", int(code)))
	}
	return nil
}

// Count adds one to a number in host memory outside the Go heap when the stream gets there. The
// number may be read with sync/atomic.
func Count(s driver.Stream, at *uint64) error {
	return driver.Check("cuLaunchHostFunc",
		int(C.engine_count(stream(s), (*C.uint64_t)(unsafe.Pointer(at)))))
}

// BeginCapture implements driver.Graphs.
func BeginCapture(s driver.Stream) error {
	return check("cuStreamBeginCapture",
		C.cuStreamBeginCapture(stream(s), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
}

// EndCapture implements driver.Graphs.
func EndCapture(s driver.Stream) (driver.Graph, error) {
	var g C.CUgraphExec
	if code := C.engine_end_capture(stream(s), &g); code != 0 {
		return 0, driver.Check("cuStreamEndCapture", int(code))
	}
	return driver.Graph(uintptr(unsafe.Pointer(g))), nil
}

// Replay implements driver.Graphs.
func Replay(g driver.Graph, s driver.Stream) error {
	return check("cuGraphLaunch", C.cuGraphLaunch(graph(g), stream(s)))
}

// FreeGraph implements driver.Graphs.
func FreeGraph(g driver.Graph) error {
	return check("cuGraphExecDestroy", C.cuGraphExecDestroy(graph(g)))
}

// Share implements driver.Sharing.
func Share(p driver.Pointer) (h driver.ShareHandle, err error) {
	err = check("cuIpcGetMemHandle",
		C.cuIpcGetMemHandle((*C.CUipcMemHandle)(unsafe.Pointer(&h)), C.CUdeviceptr(p)))
	return h, err
}

// OpenShared implements driver.Sharing.
func OpenShared(h driver.ShareHandle) (driver.Pointer, error) {
	var p C.CUdeviceptr
	code := C.engine_open_shared(&p, unsafe.Pointer(&h))
	return driver.Pointer(p), driver.Check("cuIpcOpenMemHandle", int(code))
}

// CloseShared implements driver.Sharing.
func CloseShared(p driver.Pointer) error {
	return check("cuIpcCloseMemHandle", C.cuIpcCloseMemHandle(C.CUdeviceptr(p)))
}

// Products is a handle of cuBLAS, for one goroutine at a time.
type Products struct{ handle unsafe.Pointer }

// library names cuBLAS in errors.
const library = "cuBLAS"

func products(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	return &driver.Error{Call: call, Code: int(code), Lib: library}
}

// NewProducts makes a handle in the context that is current; LoadProducts comes first. The
// workspace is device memory that stays allocated while the handle is used: with one given, work
// in a captured stream needs no allocation.
func NewProducts(workspace driver.Pointer, bytes int64) (*Products, error) {
	p := &Products{}
	if err := products("cublasCreate", C.engine_blas_create(&p.handle)); err != nil {
		return nil, err
	}
	code := C.engine_blas_workspace(p.handle, C.CUdeviceptr(workspace), C.size_t(bytes))
	if err := products("cublasSetWorkspace", code); err != nil {
		C.engine_blas_destroy(p.handle)
		return nil, err
	}
	return p, nil
}

// Close gives the handle back.
func (p *Products) Close() error {
	return products("cublasDestroy", C.engine_blas_destroy(p.handle))
}

// kinds are cuBLAS's names of the types.
var kinds = map[driver.Type]C.int{driver.Float32: 0, driver.Float16: 2, driver.BFloat16: 14}

// Multiply implements driver.Products.
func (p *Products) Multiply(a driver.Product, s driver.Stream) error {
	c := C.engine_product{a: C.uintptr_t(a.A), b: C.uintptr_t(a.B), c: C.uintptr_t(a.C),
		m: C.int(a.M), n: C.int(a.N), k: C.int(a.K), in: kinds[a.In], out: kinds[a.Out],
		beta: C.float(a.Beta)}
	if err := products("cublasGemmEx", C.engine_blas_gemm(p.handle, stream(s), &c)); err != nil {
		return fmt.Errorf("product [%d][%d] of %d: %w", a.M, a.N, a.K, err)
	}
	return nil
}
