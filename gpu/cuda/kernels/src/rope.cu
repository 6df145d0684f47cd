// Rotation of queries and keys, and the way of keys and values into their pages.
#include "numbers.h"

// The sine and cosine of a finite angle of at most about 10⁹, with the polynomials of FreeBSD's
// msun (k_sin.c, k_cos.c): the steps of the CPU device, so that tables have its bits.
DEVICE void sine_cosine(double angle, double* sine, double* cosine) {
  const double n = __builtin_floor(__builtin_fma(angle, 0.63661977236758134308, 0.5));
  double r = __builtin_fma(-n, 1.5707963267948966, angle);
  r = __builtin_fma(-n, 6.123233995736766e-17, r);
  const double square = r * r;
  double p = __builtin_fma(square, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
  p = __builtin_fma(square, p, 2.75573137070700676789e-06);
  p = __builtin_fma(square, p, -1.98412698298579493134e-04);
  p = __builtin_fma(square, p, 8.33333333332248946124e-03);
  p = __builtin_fma(square, p, -1.66666666666666324348e-01);
  const double s = __builtin_fma(square * r, p, r);
  double c = __builtin_fma(square, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
  c = __builtin_fma(square, c, -2.75573143513906633035e-07);
  c = __builtin_fma(square, c, 2.48015872894767294178e-05);
  c = __builtin_fma(square, c, -1.38888888888741095749e-03);
  c = __builtin_fma(square, c, 4.16666666666666019037e-02);
  c = __builtin_fma(square, c, -0.5);
  c = __builtin_fma(square, c, 1.);
  const int quarter = (int)((int64_t)n & 3);
  const double a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
  *sine = quarter & 2 ? -a : a;
  *cosine = quarter == 1 || quarter == 2 ? -b : b;
}

KERNEL(256, rope_table,
       (float* table, const int* positions, const double* freqs, int half, float scale)) {
  const double position = positions[block_x()];
  float* row = table + (int64_t)block_x() * half * 2;
  for (int i = thread_x(); i < half; i += threads_x()) {
    double sine, cosine;
    sine_cosine(position * freqs[i], &sine, &cosine);
    row[2 * i] = (float)cosine * scale;
    row[2 * i + 1] = (float)sine * scale;
  }
}

// Head is one head of one row: where it is, and where it goes in the pages, if it does.
template <class A>
struct Head {
  A* row;
  void* pages;
  int64_t to;
  int type;
  bool append;

  DEVICE_METHOD void store(int i, float v) const {
    if (append) store_stored(pages, type, to + i, v);
  }

  DEVICE_METHOD void store2(int i, float a, float b) const {
    if (append) store_stored2(pages, type, to + i, a, b);
  }

  DEVICE_METHOD void rotate(const float* table, int half) const {
    for (int i = thread_x() % WARP; i < half; i += WARP) {
      TRAFFIC(4 * (int)sizeof(A) + 8);
      const float c = table[2 * i], s = table[2 * i + 1];
      const float a = to_float(row[i]), b = to_float(row[i + half]);
      const float first = a * c - b * s, second = b * c + a * s;
      row[i] = from_float(first, A{});
      row[i + half] = from_float(second, A{});
      store(i, first);
      store(i + half, second);
    }
  }

  // rotate_twos does the same for an even half, two pairs at a time.
  DEVICE_METHOD void rotate_twos(const float* table, int half) const {
    for (int i = thread_x() % WARP * 2; i < half; i += WARP * 2) {
      TRAFFIC(8 * (int)sizeof(A) + 16);
      float a[2], b[2], first[2], second[2];
      load2(a, row + i);
      load2(b, row + i + half);
      UNROLL for (int k = 0; k < 2; k++) {
        const float c = table[2 * (i + k)], s = table[2 * (i + k) + 1];
        first[k] = a[k] * c - b[k] * s;
        second[k] = b[k] * c + a[k] * s;
      }
      ::store2(row + i, first[0], first[1]);
      ::store2(row + i + half, second[0], second[1]);
      store2(i, first[0], first[1]);
      store2(i + half, second[0], second[1]);
    }
  }

  DEVICE_METHOD void copy_twos(int first, int dim) const {
    if (!append) return;
    for (int i = first + thread_x() % WARP * 2; i < dim; i += WARP * 2) {
      TRAFFIC(4 * (int)sizeof(A));
      float v[2];
      load2(v, row + i);
      store2(i, v[0], v[1]);
    }
  }

  DEVICE_METHOD void copy(int first, int dim) const {
    if (!append) return;
    for (int i = first + thread_x() % WARP; i < dim; i += WARP) store(i, to_float(row[i]));
  }
};

// A warp a head. A slot below 0 stands for padding: it is not appended. half is at most dim/2.
template <class A>
DEVICE void rope_append(A* qkv, void* pages, int type, const float* table, const int* slots,
                        int heads, int kv_heads, int dim, int half, int page_size) {
  const int total = heads + 2 * kv_heads;
  const int h = block_y() * (threads_x() / WARP) + thread_x() / WARP;
  if (h >= total) return;
  const int64_t row = block_x();
  const int slot = slots[row], kv = h - heads;
  Head<A> head{qkv + (row * total + h) * dim, pages, 0, type, kv >= 0 && slot >= 0};
  const bool value = kv >= kv_heads;
  if (head.append) {
    const int64_t page = slot / page_size, at = slot % page_size;
    const int64_t side = page * 2 + (value ? 1 : 0);
    head.to = ((side * page_size + at) * kv_heads + (value ? kv - kv_heads : kv)) * dim;
  }
  const float* turns = table + row * half * 2;
  if (dim % 2 == 0 && half % 2 == 0) {
    if (!value) head.rotate_twos(turns, half);
    head.copy_twos(value ? 0 : 2 * half, dim);
  } else {
    if (!value) head.rotate(turns, half);
    head.copy(value ? 0 : 2 * half, dim);
  }
}

#define MAKE(name, A)                                                                      \
  KERNEL(256, rope_append_##name,                                                          \
         (A * qkv, void* pages, int type, const float* table, const int* slots, int heads, \
          int kv_heads, int dim, int half, int page_size)) {                               \
    rope_append(qkv, pages, type, table, slots, heads, kv_heads, dim, half, page_size);    \
  }
FOR_ACTIVATIONS(MAKE)
#undef MAKE
