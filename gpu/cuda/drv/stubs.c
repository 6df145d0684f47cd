//go:build cuda

// Every function of the driver is a jump through a pointer, so that the binary needs no driver to
// be linked nor to start. Before load.c has filled the pointers, and for what a driver lacks, a call
// answers "not supported".
#include <cuda.h>

static CUresult missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#if defined(__x86_64__)
#define JUMP(name) "jmp *engine_" name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) \
	"adrp x16, engine_" name "\nldr x16, [x16, :lo12:engine_" name "]\nbr x16\n"
#else
#error "the build tag cuda is for amd64 and arm64"
#endif

#define STUB(name, text)                                                                  \
	__attribute__((visibility("hidden"))) void *engine_##name = (void *)missing;          \
	__asm__(".pushsection .text\n.globl " text "\n.type " text ", %function\n" text ":\n" \
		JUMP(text) ".size " text ", .-" text "\n.popsection\n");

#define SYMBOL(name) STUB(name, #name)
#include "symbols.h"
#undef SYMBOL

// gorgonia.org/cu calls this when its package is initialised, and exits where it fails. It succeeds
// everywhere: engine_load initialises the driver when a device is opened.
CUresult cuInit(unsigned int flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
