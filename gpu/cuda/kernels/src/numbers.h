// Stored numbers, eight at a time where memory allows it.
#pragma once
#include "simt.h"

// The values of gpu.DType.
enum Stored { F32 = 0, F16 = 1, BF16 = 2 };

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2E = 1.4426950408889634f;

DEVICE float from_float(float x, float) { return x; }
DEVICE bf16 from_float(float x, bf16) { return to_bf16(x); }
DEVICE f16 from_float(float x, f16) { return to_f16(x); }

DEVICE bool aligned(const void* p) { return ((uint64_t)p & 15) == 0; }
DEVICE int least(int a, int b) { return a < b ? a : b; }
DEVICE int most(int a, int b) { return a > b ? a : b; }
DEVICE float most(float a, float b) { return a > b ? a : b; }

DEVICE void unpack2(float* v, uint32_t u, bf16) {
  v[0] = to_float(bf16{(uint16_t)u});
  v[1] = to_float(bf16{(uint16_t)(u >> 16)});
}
DEVICE void unpack2(float* v, uint32_t u, f16) {
  v[0] = to_float(f16{(uint16_t)u});
  v[1] = to_float(f16{(uint16_t)(u >> 16)});
}

// load8 reads n of eight numbers, the others are 0; wide says that p is aligned to 16 bytes.
template <class T>
DEVICE void load8(float* v, const T* p, int n, bool wide) {
  TRAFFIC(least(n, 8) * (int)sizeof(T));
  if (wide && n >= 8) {
    Vec16 x = *(const Vec16*)p;
    unpack2(v, x.x, T{});
    unpack2(v + 2, x.y, T{});
    unpack2(v + 4, x.z, T{});
    unpack2(v + 6, x.w, T{});
    return;
  }
  UNROLL for (int i = 0; i < 8; i++) v[i] = i < n ? to_float(p[i]) : 0.f;
}
DEVICE void load8(float* v, const float* p, int n, bool wide) {
  TRAFFIC(least(n, 8) * 4);
  if (wide && n >= 8) {
    UNROLL for (int i = 0; i < 8; i += 4) {
      Vec16 x = *(const Vec16*)(p + i);
      v[i] = __builtin_bit_cast(float, x.x);
      v[i + 1] = __builtin_bit_cast(float, x.y);
      v[i + 2] = __builtin_bit_cast(float, x.z);
      v[i + 3] = __builtin_bit_cast(float, x.w);
    }
    return;
  }
  UNROLL for (int i = 0; i < 8; i++) v[i] = i < n ? p[i] : 0.f;
}

// store8 writes n of eight numbers.
template <class T>
DEVICE void store8(T* p, const float* v, int n, bool wide) {
  TRAFFIC(least(n, 8) * (int)sizeof(T));
  if (wide && n >= 8) {
    *(Vec16*)p = Vec16{pack2(v[0], v[1], T{}), pack2(v[2], v[3], T{}), pack2(v[4], v[5], T{}),
                       pack2(v[6], v[7], T{})};
    return;
  }
  UNROLL for (int i = 0; i < 8; i++) {
    if (i < n) p[i] = from_float(v[i], T{});
  }
}
DEVICE void store8(float* p, const float* v, int n, bool wide) {
  TRAFFIC(least(n, 8) * 4);
  if (wide && n >= 8) {
    UNROLL for (int i = 0; i < 8; i += 4) {
      *(Vec16*)(p + i) =
          Vec16{__builtin_bit_cast(uint32_t, v[i]), __builtin_bit_cast(uint32_t, v[i + 1]),
                __builtin_bit_cast(uint32_t, v[i + 2]), __builtin_bit_cast(uint32_t, v[i + 3])};
    }
    return;
  }
  UNROLL for (int i = 0; i < 8; i++) {
    if (i < n) p[i] = v[i];
  }
}

// Two neighbours, the first at an even place of memory that is aligned to 4 bytes.
template <class T>
DEVICE void load2(float* v, const T* p) {
  unpack2(v, *(const uint32_t*)p, T{});
}
DEVICE void load2(float* v, const float* p) {
  v[0] = p[0];
  v[1] = p[1];
}
template <class T>
DEVICE void store2(T* p, float a, float b) {
  *(uint32_t*)p = pack2(a, b, T{});
}
DEVICE void store2(float* p, float a, float b) {
  p[0] = a;
  p[1] = b;
}

// Memory whose type is known when the kernel runs.
DEVICE float load_stored(const void* p, int type, int64_t i) {
  if (type == F32) return ((const float*)p)[i];
  if (type == F16) return to_float(((const f16*)p)[i]);
  return to_float(((const bf16*)p)[i]);
}
DEVICE void store_stored(void* p, int type, int64_t i, float v) {
  if (type == F32) {
    ((float*)p)[i] = v;
  } else if (type == F16) {
    ((f16*)p)[i] = to_f16(v);
  } else {
    ((bf16*)p)[i] = to_bf16(v);
  }
}
// Two neighbours, the first at an even place.
DEVICE void store_stored2(void* p, int type, int64_t i, float a, float b) {
  if (type == F32) {
    ((float*)p)[i] = a;
    ((float*)p)[i + 1] = b;
  } else {
    *(uint32_t*)((uint16_t*)p + i) = type == F16 ? pack2(a, b, f16{}) : pack2(a, b, bf16{});
  }
}
DEVICE void load_stored8(float* v, const void* p, int type, int64_t i, int n) {
  if (type == F32) {
    load8(v, (const float*)p + i, n, aligned((const float*)p + i));
  } else if (type == F16) {
    load8(v, (const f16*)p + i, n, aligned((const f16*)p + i));
  } else {
    load8(v, (const bf16*)p + i, n, aligned((const bf16*)p + i));
  }
}

DEVICE float warp_sum(float v) {
  UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}
// block_sum adds over the block, the same for all threads; room is one float a warp.
DEVICE float block_sum(float v, float* room) {
  v = warp_sum(v);
  if (thread_x() % WARP == 0) room[thread_x() / WARP] = v;
  sync_block();
  float sum = 0.f;
  for (int i = 0; i < threads_x() / WARP; i++) sum += room[i];
  return sum;
}
