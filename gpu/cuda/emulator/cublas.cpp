// The emulated library of matrix products: cublasGemmEx with sums in float32, in the streams of the
// emulated driver. Matrices are column-major, as BLAS has them.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" int engine_emulator_enqueue(void* stream, int64_t flops, int64_t bytes,
                                       void (*run)(void*), void* data);

namespace {

enum Type { kFloat = 0, kHalf = 2, kBfloat = 14 };
enum Status {
  kSuccess = 0,
  kNotInitialised = 1,
  kAllocationFailed = 3,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15
};

struct Handle {
  void* stream;
};

int size_of(int type) { return type == kFloat ? 4 : 2; }

float load(const void* p, int type, int64_t i) {
  if (type == kFloat) return static_cast<const float*>(p)[i];
  const uint16_t bits = static_cast<const uint16_t*>(p)[i];
  if (type == kHalf) return static_cast<float>(__builtin_bit_cast(_Float16, bits));
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

void store(void* p, int type, int64_t i, float x) {
  if (type == kFloat) {
    static_cast<float*>(p)[i] = x;
  } else if (type == kHalf) {
    static_cast<_Float16*>(p)[i] = static_cast<_Float16>(x);
  } else {
    uint32_t u = __builtin_bit_cast(uint32_t, x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    u += 0x7fffu + ((u >> 16) & 1u);
    static_cast<uint16_t*>(p)[i] = nan ? 0x7fff : static_cast<uint16_t>(u >> 16);
  }
}

// Product is C[m][n] = alpha·op(A)·op(B) + beta·C.
struct Product {
  int m, n, k, in, out;
  bool transpose_a, transpose_b;
  const void *a, *b;
  void* c;
  int64_t lda, ldb, ldc;
  float alpha, beta;

  // row_a and column_b are k numbers in float32.
  void row_a(float* to, int i) const {
    for (int l = 0; l < k; l++) to[l] = load(a, in, transpose_a ? i * lda + l : l * lda + i);
  }
  void column_b(float* to, int j) const {
    for (int l = 0; l < k; l++) to[l] = load(b, in, transpose_b ? l * ldb + j : j * ldb + l);
  }

  // rows computes rows [from, to) of C, eight sums for each number.
  void rows(int from, int to, const std::vector<float>& columns) const {
    std::vector<float> row(static_cast<size_t>(k));
    for (int i = from; i < to; i++) {
      row_a(row.data(), i);
      for (int j = 0; j < n; j++) {
        const float* column = columns.data() + static_cast<size_t>(j) * k;
        float sums[8] = {};
        int l = 0;
        for (; l + 8 <= k; l += 8) {
          for (int s = 0; s < 8; s++) sums[s] += row[l + s] * column[l + s];
        }
        for (; l < k; l++) sums[l % 8] += row[l] * column[l];
        float sum = 0;
        for (float s : sums) sum += s;
        const int64_t at = j * ldc + i;
        store(c, out, at, alpha * sum + (beta == 0 ? 0 : beta * load(c, out, at)));
      }
    }
  }
};

void run(void* data) {
  const Product& p = *static_cast<const Product*>(data);
  std::vector<float> columns(static_cast<size_t>(p.n) * p.k);
  for (int j = 0; j < p.n; j++) p.column_b(columns.data() + static_cast<size_t>(j) * p.k, j);
  p.rows(0, p.m, columns);
}

}  // namespace

EXPORT int cublasCreate_v2(Handle** h) {
  *h = new Handle{nullptr};
  return kSuccess;
}

EXPORT int cublasDestroy_v2(Handle* h) {
  delete h;
  return kSuccess;
}

EXPORT int cublasSetStream_v2(Handle* h, void* stream) {
  if (!h) return kNotInitialised;
  h->stream = stream;
  return kSuccess;
}

EXPORT int cublasSetWorkspace_v2(Handle* h, void*, size_t) {
  return h ? kSuccess : kNotInitialised;
}

EXPORT int cublasSetMathMode(Handle* h, int) { return h ? kSuccess : kNotInitialised; }

EXPORT int cublasGetVersion_v2(Handle*, int* version) {
  *version = 130000;
  return kSuccess;
}

EXPORT int cublasGemmEx(Handle* h, int op_a, int op_b, int m, int n, int k, const void* alpha,
                        const void* a, int type_a, int lda, const void* b, int type_b, int ldb,
                        const void* beta, void* c, int type_c, int ldc, int compute, int) {
  constexpr int kCompute32 = 68, kCompute32Pedantic = 69;
  if (!h) return kNotInitialised;
  if (m < 0 || n < 0 || k < 0 || lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m) {
    return kInvalidValue;
  }
  const bool known = type_a == kFloat || type_a == kHalf || type_a == kBfloat;
  if (!known || type_a != type_b || (type_c != type_a && type_c != kFloat) ||
      (compute != kCompute32 && compute != kCompute32Pedantic)) {
    return kNotSupported;
  }
  if (m == 0 || n == 0) return kSuccess;
  void* room = malloc(sizeof(Product));
  if (!room) return kAllocationFailed;
  auto* p = new (room) Product{m, n, k, type_a, type_c, op_a != 0, op_b != 0, a, b, c,
                               lda, ldb, ldc, *static_cast<const float*>(alpha),
                               *static_cast<const float*>(beta)};
  const int64_t bytes = (static_cast<int64_t>(m) * k + static_cast<int64_t>(n) * k) *
                            size_of(type_a) +
                        static_cast<int64_t>(m) * n * size_of(type_c);
  const int code = engine_emulator_enqueue(h->stream, 2ll * m * n * k, bytes, run, p);
  return code == 0 ? kSuccess : kExecutionFailed;
}
