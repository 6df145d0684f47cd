//go:build cuda

package drv

/*
#cgo LDFLAGS: -ldl
#include "drv.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// PathVariable names the environment variable with the path of the driver's library: another
// driver, or an emulated one. Empty means that there is none.
const PathVariable = "ENGINE_CUDA_DRIVER"

// driverLibraries are tried in order where PathVariable is not set.
var driverLibraries = []string{"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"}

// textSize bounds what the linker may say.
const textSize = 512

// loading is the one attempt to load the driver of this process.
var loading = sync.OnceValues(func() (string, error) {
	paths := driverLibraries
	if path, set := os.LookupEnv(PathVariable); set {
		if path == "" {
			return "", fmt.Errorf("%w: %s is empty", driver.ErrNoDevice, PathVariable)
		}
		paths = []string{path}
	}
	var tried []error
	for _, path := range paths {
		err := load(path)
		if err == nil {
			return path, nil
		}
		tried = append(tried, err)
	}
	return "", fmt.Errorf("%w: the driver cannot be loaded; install NVIDIA's driver, or set %s to "+
		"the path of libcuda.so.1: %w", driver.ErrNoDevice, PathVariable, errors.Join(tried...))
})

// Load loads and initialises the driver, once, and returns the library's path. Without a driver,
// and where it finds no device, the error is driver.ErrNoDevice and says why.
func Load() (string, error) { return loading() }

func load(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [textSize]C.char
	var lacking C.int
	switch code := C.engine_load(name, &text[0], textSize, &lacking); code {
	case 0:
		return nil
	case -1:
		return errors.New(C.GoString(&text[0]))
	default:
		return fmt.Errorf("%s: %w", path, driver.Check("cuInit", int(code)))
	}
}

// productLibraries are the names of the library of products, newest first.
var productLibraries = []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}

// loadingProducts is the one attempt to load cuBLAS, beside the driver's library if it names one.
var loadingProducts = sync.OnceValues(func() (string, error) {
	var paths []string
	if beside := os.Getenv(PathVariable); filepath.Base(beside) != beside {
		for _, name := range productLibraries {
			paths = append(paths, filepath.Join(filepath.Dir(beside), name))
		}
	}
	paths = append(paths, productLibraries...)
	for _, name := range productLibraries {
		paths = append(paths, "/usr/local/cuda/lib64/"+name)
	}
	var tried []error
	for _, path := range paths {
		name := C.CString(path)
		var text [textSize]C.char
		code := C.engine_load_blas(name, &text[0], textSize)
		C.free(unsafe.Pointer(name))
		if code == 0 {
			return path, nil
		}
		tried = append(tried, errors.New(C.GoString(&text[0])))
	}
	return "", fmt.Errorf("matrix products need cuBLAS, which cannot be loaded; put its folder "+
		"into LD_LIBRARY_PATH: %w", errors.Join(tried...))
})

// LoadProducts loads cuBLAS, once, and returns its path. Load comes first.
func LoadProducts() (string, error) { return loadingProducts() }

func check(call string, code C.CUresult) error { return driver.Check(call, int(code)) }

// AllocHost returns pinned memory.
func AllocHost(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := check("cuMemAllocHost", C.cuMemAllocHost(&p, C.size_t(bytes))); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// FreeHost gives memory of AllocHost back.
func FreeHost(b []byte) error {
	return check("cuMemFreeHost", C.cuMemFreeHost(unsafe.Pointer(unsafe.SliceData(b))))
}

// Register pins memory outside the Go heap.
func Register(b []byte) error {
	return check("cuMemHostRegister", C.cuMemHostRegister(unsafe.Pointer(unsafe.SliceData(b)),
		C.size_t(len(b)), C.CU_MEMHOSTREGISTER_PORTABLE))
}

// Unregister undoes Register.
func Unregister(b []byte) error {
	return check("cuMemHostUnregister",
		C.cuMemHostUnregister(unsafe.Pointer(unsafe.SliceData(b))))
}

// SetShared allows a function so many bytes of dynamic shared memory.
func SetShared(f driver.Function, bytes int) error {
	return check("cuFuncSetAttribute", C.cuFuncSetAttribute(
		function(f), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// Handles are the driver's pointers kept as numbers: they point to no Go memory.

func function(f driver.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func stream(s driver.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func graph(g driver.Graph) C.CUgraphExec      { return *(*C.CUgraphExec)(unsafe.Pointer(&g)) }
