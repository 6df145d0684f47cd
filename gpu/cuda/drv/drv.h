// What package drv calls of its own C.
#ifndef ENGINE_DRV_H
#define ENGINE_DRV_H

#if defined(__has_include) && !__has_include(<cuda.h>)
#error "-tags cuda needs the flags that make cuda gives to cgo: run make cuda"
#endif
#include <cuda.h>

enum { ENGINE_PARAMS = 64 };

typedef struct {
	uintptr_t function;
	uint32_t grid[3], block[3], shared, params;
} engine_kernel;

typedef struct {
	uintptr_t a, b, c;
	int m, n, k, in, out;
	float beta;
} engine_product;

int engine_load(const char *path, char *text, int size, int *lacking);
int engine_launch(CUstream, const engine_kernel *, int count, uint64_t *cells, int *failed);
int engine_count(CUstream, uint64_t *at);
int engine_end_capture(CUstream, CUgraphExec *);
int engine_open_shared(CUdeviceptr *, const void *handle);
int engine_load_blas(const char *path, char *text, int size);
int engine_blas_create(void **handle);
int engine_blas_destroy(void *handle);
int engine_blas_workspace(void *handle, CUdeviceptr at, size_t bytes);
int engine_blas_gemm(void *handle, CUstream, const engine_product *);

#endif
