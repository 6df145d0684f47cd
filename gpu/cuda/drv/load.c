//go:build cuda

#define _GNU_SOURCE
#include "drv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SYMBOL(name) extern void *engine_##name;
#include "symbols.h"
#undef SYMBOL

static const struct {
	const char *name;
	void **to;
} symbols[] = {
#define SYMBOL(name) {#name, &engine_##name},
#include "symbols.h"
#undef SYMBOL
};

// engine_load opens the driver's library, points the stubs to it and initialises it. lacking counts
// the functions that it does not have. The result is the driver's code, or -1 with the linker's words
// in text.
int engine_load(const char *path, char *text, int size, int *lacking) {
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		snprintf(text, size, "%s", dlerror());
		return -1;
	}
	CUresult (*initialise)(unsigned int) = (CUresult(*)(unsigned int))dlsym(library, "cuInit");
	if (!initialise) {
		snprintf(text, size, "%s has no cuInit", path);
		dlclose(library);
		return -1;
	}
	*lacking = 0;
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *found = dlsym(library, symbols[i].name);
		if (found)
			*symbols[i].to = found;
		else
			++*lacking;
	}
	return initialise(0);
}

// engine_launch starts kernels one after another; cells holds the parameters of all of them. It
// stops at the first that is refused, whose place goes to failed.
int engine_launch(CUstream stream, const engine_kernel *kernels, int count, uint64_t *cells,
		int *failed) {
	void *params[ENGINE_PARAMS];
	for (int i = 0; i < count; i++) {
		const engine_kernel *k = &kernels[i];
		for (uint32_t p = 0; p < k->params; p++)
			params[p] = cells++;
		CUresult code = cuLaunchKernel((CUfunction)k->function, k->grid[0], k->grid[1], k->grid[2],
			k->block[0], k->block[1], k->block[2], k->shared, stream, params, NULL);
		if (code) {
			*failed = i;
			return code;
		}
	}
	return 0;
}

static void count_up(void *at) { __atomic_fetch_add((uint64_t *)at, 1, __ATOMIC_RELEASE); }

// engine_count adds one to a number in host memory when the stream gets there.
int engine_count(CUstream stream, uint64_t *at) { return cuLaunchHostFunc(stream, count_up, at); }

int engine_end_capture(CUstream stream, CUgraphExec *to) {
	CUgraph graph = NULL;
	CUresult code = cuStreamEndCapture(stream, &graph);
	if (code)
		return code;
	code = cuGraphInstantiateWithFlags(to, graph, 0);
	cuGraphDestroy(graph);
	return code;
}

int engine_open_shared(CUdeviceptr *to, const void *handle) {
	CUipcMemHandle h;
	memcpy(&h, handle, sizeof h);
	return cuIpcOpenMemHandle(to, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

// The library of products, by its binary interface; handles are pointers, all else is an int.
static struct {
	int (*create)(void **);
	int (*destroy)(void *);
	int (*stream)(void *, CUstream);
	int (*workspace)(void *, void *, size_t);
	int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
		int, int, const void *, void *, int, int, int, int);
} blas;

int engine_load_blas(const char *path, char *text, int size) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(text, size, "%s", dlerror());
		return -1;
	}
	*(void **)&blas.create = dlsym(library, "cublasCreate_v2");
	*(void **)&blas.destroy = dlsym(library, "cublasDestroy_v2");
	*(void **)&blas.stream = dlsym(library, "cublasSetStream_v2");
	*(void **)&blas.workspace = dlsym(library, "cublasSetWorkspace_v2");
	*(void **)&blas.gemm = dlsym(library, "cublasGemmEx");
	if (!blas.create || !blas.destroy || !blas.stream || !blas.workspace || !blas.gemm) {
		snprintf(text, size, "%s lacks a function of cuBLAS 11", path);
		dlclose(library);
		return -1;
	}
	return 0;
}

int engine_blas_create(void **handle) { return blas.create(handle); }
int engine_blas_destroy(void *handle) { return blas.destroy(handle); }

int engine_blas_workspace(void *handle, CUdeviceptr at, size_t bytes) {
	return blas.workspace(handle, (void *)(uintptr_t)at, bytes);
}

// The library thinks in columns: row-major C[m][n] = A[m][k] · B[n][k]ᵀ is its C[n,m] = B·A, B turned.
int engine_blas_gemm(void *handle, CUstream stream, const engine_product *p) {
	enum { keep = 0, turn = 1, sums_float32 = 68, choose = -1 };
	float one = 1;
	int code = blas.stream(handle, stream);
	if (code)
		return code;
	return blas.gemm(handle, turn, keep, p->n, p->m, p->k, &one, (void *)p->b, p->in, p->k,
		(void *)p->a, p->in, p->k, &p->beta, (void *)p->c, p->out, p->n, sums_float32, choose);
}
