// Kernels that work on rows: embedding, norms, gates, gathers and conversions.
#include "numbers.h"

// One block a row. A token below 0 stands for padding and gives zeros.
template <class A>
DEVICE void embed(A* dst, const void* table, int type, const int* tokens, int width, float scale) {
  const int64_t token = tokens[block_x()];
  A* out = dst + (int64_t)block_x() * width;
  const bool wide = aligned(out);
  for (int k = thread_x() * 8; k < width; k += threads_x() * 8) {
    float v[8] = {};
    if (token >= 0) load_stored8(v, table, type, token * width + k, width - k);
    UNROLL for (int i = 0; i < 8; i++) v[i] *= scale;
    store8(out + k, v, width - k, wide);
  }
}

// Norm is one vector's part of gpu.NormArgs.
template <class A>
struct Norm {
  A *dst, *x;
  const A *add, *weight;
  int dim;
  bool wide, accumulate;
  float offset;

  // sum_squares adds what is to be added and sums the squares of this thread's part.
  DEVICE_METHOD float sum_squares(int first, int step) const {
    float sum = 0.f;
    for (int k = first * 8; k < dim; k += step * 8) {
      float v[8];
      load8(v, x + k, dim - k, wide);
      if (add) {
        float more[8];
        load8(more, add + k, dim - k, wide);
        UNROLL for (int i = 0; i < 8; i++) {
          v[i] = to_float(from_float(v[i] + more[i], A{}));
        }
        store8(x + k, v, dim - k, wide);
      }
      UNROLL for (int i = 0; i < 8; i++) sum = __builtin_fmaf(v[i], v[i], sum);
    }
    return sum;
  }

  DEVICE_METHOD void write(int first, int step, float inverse) const {
    for (int k = first * 8; k < dim; k += step * 8) {
      float v[8], w[8];
      load8(v, x + k, dim - k, wide);
      load8(w, weight + k, dim - k, wide);
      UNROLL for (int i = 0; i < 8; i++) v[i] = v[i] * inverse * (w[i] + offset);
      if (accumulate) {
        load8(w, dst + k, dim - k, wide);
        UNROLL for (int i = 0; i < 8; i++) v[i] += w[i];
      }
      store8(dst + k, v, dim - k, wide);
    }
  }
};

template <class A>
DEVICE Norm<A> norm_of(A* dst, A* x, const A* add, const A* weight, int dim, int groups, int stride,
                       int offset, float weight_offset, int accumulate, int vector) {
  const int64_t at =
      (int64_t)(vector / groups) * stride + offset + (int64_t)(vector % groups) * dim;
  Norm<A> n{dst + at, x + at, add ? add + at : nullptr, weight, dim, false, accumulate != 0,
            weight_offset};
  n.wide = aligned(n.dst) && aligned(n.x) && aligned(n.weight) && (!add || aligned(n.add));
  return n;
}

#define MAKE(name, A)                                                                          \
  KERNEL(256, embed_##name,                                                                    \
         (A * dst, const void* table, int type, const int* tokens, int width, float scale)) {  \
    embed(dst, table, type, tokens, width, scale);                                             \
  }                                                                                            \
  KERNEL(256, norm_row_##name,                                                                 \
         (A * dst, A * x, const A* add, const A* weight, int dim, int groups, int stride,      \
          int offset, float eps, float weight_offset, int accumulate, int vectors)) {          \
    auto n = norm_of(dst, x, add, weight, dim, groups, stride, offset, weight_offset,          \
                     accumulate, block_x());                                                   \
    float sum = block_sum(n.sum_squares(thread_x(), threads_x()), (float*)dynamic_shared());   \
    n.write(thread_x(), threads_x(), rsqrt_fast(sum / (float)dim + eps));                      \
  }                                                                                            \
  KERNEL(128, norm_head_##name,                                                                \
         (A * dst, A * x, const A* add, const A* weight, int dim, int groups, int stride,      \
          int offset, float eps, float weight_offset, int accumulate, int vectors)) {          \
    int vector = block_x() * (threads_x() / WARP) + thread_x() / WARP;                         \
    if (vector >= vectors) return;                                                             \
    auto n = norm_of(dst, x, add, weight, dim, groups, stride, offset, weight_offset,          \
                     accumulate, vector);                                                      \
    float sum = warp_sum(n.sum_squares(thread_x() % WARP, WARP));                              \
    n.write(thread_x() % WARP, WARP, rsqrt_fast(sum / (float)dim + eps));                      \
  }
FOR_ACTIVATIONS(MAKE)
#undef MAKE

DEVICE float silu(float x) { return x * rcp_fast(1.f + exp2_fast(-kLog2E * x)); }

// 0.5·x·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))), as x / (1 + e^-2y).
DEVICE float gelu_tanh(float x) {
  const float y = x * __builtin_fmaf(x * x, 0.044715f, 1.f) * 1.5957691216057308f;
  return x * rcp_fast(1.f + exp2_fast(-kLog2E * y));
}

template <class A>
DEVICE void glu(A* dst, const A* gate_up, int width, int activation) {
  const int64_t row = block_x();
  const int k = (block_y() * threads_x() + thread_x()) * 8;
  if (k >= width) return;
  const A *gate = gate_up + row * 2 * width + k, *up = gate + width;
  A* out = dst + row * width + k;
  const bool wide = aligned(gate) && aligned(up) && aligned(out);
  float g[8], u[8];
  load8(g, gate, width - k, wide);
  load8(u, up, width - k, wide);
  UNROLL for (int i = 0; i < 8; i++) g[i] = (activation ? gelu_tanh(g[i]) : silu(g[i])) * u[i];
  store8(out, g, width - k, wide);
}

template <class A>
DEVICE void copy_row(A* to, const A* from, int width) {
  const bool wide = aligned(to) && aligned(from);
  for (int k = thread_x() * 8; k < width; k += threads_x() * 8) {
    float v[8];
    load8(v, from + k, width - k, wide);
    store8(to + k, v, width - k, wide);
  }
}

template <class A>
DEVICE void add_row(A* to, const A* x, float factor, int width) {
  const bool wide = aligned(to) && aligned(x);
  for (int k = thread_x() * 8; k < width; k += threads_x() * 8) {
    float v[8], old[8];
    load8(v, x + k, width - k, wide);
    load8(old, to + k, width - k, wide);
    UNROLL for (int i = 0; i < 8; i++) v[i] = old[i] + v[i] * factor;
    store8(to + k, v, width - k, wide);
  }
}

template <class To, class From>
DEVICE void convert(To* dst, const From* src, int count) {
  const int k = (block_x() * threads_x() + thread_x()) * 8;
  if (k >= count) return;
  float v[8];
  load8(v, src + k, count - k, aligned(src + k));
  store8(dst + k, v, count - k, aligned(dst + k));
}

DEVICE uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The sum of four uniform numbers has a variance of a third.
template <class A>
DEVICE void fill(A* dst, int count, int seed, float scale) {
  for (int64_t i = (int64_t)block_x() * threads_x() + thread_x(); i < count;
       i += (int64_t)blocks_x() * threads_x()) {
    const uint32_t a = mix((uint32_t)i * 2u + (uint32_t)seed), b = mix(a ^ 0x9e3779b9u);
    const float sum = (float)(a & 0xffff) + (float)(a >> 16) + (float)(b & 0xffff) +
                      (float)(b >> 16);
    dst[i] = from_float((sum * (1.f / 65536.f) - 2.f) * 1.7320508f * scale, A{});
  }
}

#define MAKE(name, A)                                                                          \
  KERNEL(256, glu_##name, (A * dst, const A* gate_up, int width, int activation)) {            \
    glu(dst, gate_up, width, activation);                                                      \
  }                                                                                            \
  KERNEL(256, gather_##name, (A * dst, const A* src, const int* rows, int width)) {            \
    copy_row(dst + (int64_t)block_x() * width, src + (int64_t)rows[block_x()] * width, width); \
  }                                                                                            \
  KERNEL(256, add_rows_##name,                                                                 \
         (A * dst, const A* x, const int* rows, const float* factors, int width)) {            \
    add_row(dst + (int64_t)rows[block_x()] * width, x + (int64_t)block_x() * width,            \
            factors[block_x()], width);                                                        \
  }                                                                                            \
  KERNEL(256, bias_rows_##name, (A * dst, const A* bias, int width)) {                         \
    copy_row(dst + (int64_t)block_x() * width, bias, width);                                   \
  }                                                                                            \
  KERNEL(256, from_float_##name, (A * dst, const float* src, int count)) {                     \
    convert(dst, src, count);                                                                  \
  }                                                                                            \
  KERNEL(256, to_float_##name, (float* dst, const A* src, int count)) {                        \
    convert(dst, src, count);                                                                  \
  }                                                                                            \
  KERNEL(256, fill_##name, (A * dst, int count, int seed, float scale)) {                      \
    fill(dst, count, seed, scale);                                                             \
  }
FOR_ACTIVATIONS(MAKE)
#undef MAKE
