// The dialect on the GPU: clang's builtins and PTX, no header of an SDK.
#pragma once

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef long int64_t;

#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define DEVICE_METHOD __attribute__((device)) inline __attribute__((always_inline))
// One block on a multiprocessor is enough: the compiler need not spill for more.
#define BOUNDS(threads) __attribute__((launch_bounds(threads, 1)))
#define KERNEL(threads, name, params) \
  extern "C" __attribute__((global)) BOUNDS(threads) void name params
// What the emulated driver counts for its clock.
#define TRAFFIC(bytes)
#define UNROLL _Pragma("unroll")

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct __attribute__((aligned(16))) Vec16 {
  uint32_t x, y, z, w;
};

DEVICE int thread_x() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int threads_x() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE int blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE int blocks_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }

extern __attribute__((shared, aligned(128))) unsigned char engine_shared[];
DEVICE unsigned char* dynamic_shared() { return engine_shared; }

DEVICE void sync_block() { asm volatile("bar.sync 0;" ::: "memory"); }
DEVICE void sync_warp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

DEVICE int shuffle_xor(int v, int mask) {
  int r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
  return r;
}
DEVICE float shuffle_xor(float v, int mask) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(v), "r"(mask));
  return r;
}
// p is in shared memory.
DEVICE int atomic_add(int* p, int n) { return __atomic_fetch_add(p, n, __ATOMIC_RELAXED); }

DEVICE float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DEVICE float rsqrt_fast(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DEVICE float rcp_fast(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

DEVICE uint32_t shared_address(const void* p) {
  uint64_t a;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(a) : "l"(p));
  return (uint32_t)a;
}
// Copies 16 bytes to shared memory when bytes is 16; 0 writes zeros and reads nothing.
DEVICE void copy_async(uint32_t shared, const void* global, int bytes) {
  asm volatile(
      "{ .reg .u64 at; cvta.to.global.u64 at, %1; cp.async.cg.shared.global [%0], [at], 16, %2; }"
      :
      : "r"(shared), "l"(global), "r"(bytes)
      : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

DEVICE void load_matrix(uint32_t* r, uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
DEVICE void load_matrix_transposed(uint32_t* r, uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
#define ENGINE_MMA(type)                                                                    \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                       \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                 \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
// d += a·b of one warp, the fragments of m16n8k16.
DEVICE void multiply(float* d, const uint32_t* a, const uint32_t* b, bf16) { ENGINE_MMA("bf16"); }
DEVICE void multiply(float* d, const uint32_t* a, const uint32_t* b, f16) { ENGINE_MMA("f16"); }

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __builtin_bit_cast(float, (uint32_t)x.bits << 16); }
DEVICE float to_float(f16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
// Two rounded numbers, the first in the low half.
DEVICE uint32_t pack2(float low, float high, bf16) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE uint32_t pack2(float low, float high, f16) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE bf16 to_bf16(float x) { return bf16{(uint16_t)pack2(x, 0.f, bf16{})}; }
DEVICE f16 to_f16(float x) { return f16{(uint16_t)pack2(x, 0.f, f16{})}; }
