// The dialect of the kernels: what they may use of the machine. The GPU's side is simt_gpu.h, the
// emulated driver's simt_cpu.h; both give the same names, so that one source makes both.
//
//   thread_x() block_x() block_y() threads_x() blocks_x()   where this thread is
//   dynamic_shared()                                        the block's shared memory
//   sync_block() sync_warp()                                barriers
//   shuffle_xor(v, mask) atomic_add(p, n)                   talk between threads
//   exp2_fast rsqrt_fast rcp_fast                           the GPU's approximations
//   shared_address copy_async copy_commit copy_wait         copies past the registers
//   load_matrix load_matrix_transposed multiply             tensor cores, m16n8k16
//   TRAFFIC(bytes)                                          tells the emulated clock
//   bf16 f16 to_float to_bf16 to_f16 pack2                  stored numbers
//
// All threads of a warp must reach each shuffle, sync_warp, load_matrix and multiply together, and
// all of a block each sync_block.
#pragma once

#ifdef ENGINE_EMULATED
#include "simt_cpu.h"
#else
#include "simt_gpu.h"
#endif

// WARP is how many threads go in step.
#define WARP 32

// Instantiates KERNEL for each type of activations, as name_f32, name_f16 and name_bf16. call is a
// function template over the type.
#ifdef ENGINE_FEW  // for builds that one test throws away
#define FOR_ACTIVATIONS(MAKE) MAKE(bf16, bf16)
#else
#define FOR_ACTIVATIONS(MAKE) MAKE(f32, float) MAKE(f16, f16) MAKE(bf16, bf16)
#endif
