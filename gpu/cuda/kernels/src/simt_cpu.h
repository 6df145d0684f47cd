// The dialect on the emulated driver: each thread is a fiber, and what threads do together is the
// emulator's work (gpu/cuda/emulator).
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "machine.h"  // of gpu/cuda/emulator

#define DEVICE static inline
#define DEVICE_METHOD inline
#define KERNEL(threads, name, params)                         \
  extern "C" void name params;                                \
  static const emulator::Entry entry_##name(#name, threads, name); \
  void name params
#define TRAFFIC(bytes) emulator::traffic(bytes)
#define UNROLL

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct alignas(16) Vec16 {
  uint32_t x, y, z, w;
};

DEVICE int thread_x() { return emulator::fiber->thread; }
DEVICE int block_x() { return emulator::place.block[0]; }
DEVICE int block_y() { return emulator::place.block[1]; }
DEVICE int threads_x() { return emulator::place.threads; }
DEVICE int blocks_x() { return emulator::place.grid[0]; }
DEVICE int blocks_y() { return emulator::place.grid[1]; }
DEVICE unsigned char* dynamic_shared() { return emulator::place.shared; }

DEVICE void sync_block() { emulator::sync_block(); }
DEVICE void sync_warp() { emulator::sync_warp(); }
DEVICE int shuffle_xor(int v, int mask) {
  return (int)emulator::shuffle_xor((uint32_t)v, mask);
}
DEVICE float shuffle_xor(float v, int mask) {
  return __builtin_bit_cast(float, emulator::shuffle_xor(__builtin_bit_cast(uint32_t, v), mask));
}
DEVICE int atomic_add(int* p, int n) {
  const int old = *p;
  *p += n;
  return old;
}

DEVICE float exp2_fast(float x) { return __builtin_exp2f(x); }
DEVICE float rsqrt_fast(float x) { return 1.f / __builtin_sqrtf(x); }
DEVICE float rcp_fast(float x) { return 1.f / x; }

DEVICE uint32_t shared_address(const void* p) { return emulator::shared_address(p); }
DEVICE void copy_async(uint32_t shared, const void* global, int bytes) {
  emulator::copy_async(shared, global, bytes);
}
DEVICE void copy_commit() { emulator::copy_commit(); }
template <int N>
DEVICE void copy_wait() {
  emulator::copy_wait(N);
}
DEVICE void load_matrix(uint32_t* r, uint32_t shared) { emulator::load_matrix(r, shared, false); }
DEVICE void load_matrix_transposed(uint32_t* r, uint32_t shared) {
  emulator::load_matrix(r, shared, true);
}
DEVICE void multiply(float* d, const uint32_t* a, const uint32_t* b, bf16) {
  emulator::multiply(d, a, b, false);
}
DEVICE void multiply(float* d, const uint32_t* a, const uint32_t* b, f16) {
  emulator::multiply(d, a, b, true);
}

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __builtin_bit_cast(float, (uint32_t)x.bits << 16); }
DEVICE float to_float(f16 x) { return (float)__builtin_bit_cast(_Float16, x.bits); }
// To the nearest, ties to even; a NaN stays one.
DEVICE bf16 to_bf16(float x) {
  uint32_t u = __builtin_bit_cast(uint32_t, x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{0x7fff};
  u += 0x7fffu + ((u >> 16) & 1u);
  return bf16{(uint16_t)(u >> 16)};
}
DEVICE f16 to_f16(float x) { return f16{__builtin_bit_cast(uint16_t, (_Float16)x)}; }
DEVICE uint32_t pack2(float low, float high, bf16) {
  return (uint32_t)to_bf16(low).bits | (uint32_t)to_bf16(high).bits << 16;
}
DEVICE uint32_t pack2(float low, float high, f16) {
  return (uint32_t)to_f16(low).bits | (uint32_t)to_f16(high).bits << 16;
}
