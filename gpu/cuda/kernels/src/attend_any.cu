// Attention of any head size over pages of any type: a warp a row and head, no tensor cores. The
// result of split-KV decode is put together here too.
#include "attention.h"

// Scratch is a warp's shared memory: [dim] query, [dim] output, then one weight and one slot a
// lane.
struct Scratch {
  float *query, *output, *weights;
  int64_t* slots;
};

DEVICE Scratch scratch(int dim) {
  // The slots come first: they need an alignment of 8.
  int64_t* slots = (int64_t*)dynamic_shared();
  float* floats = (float*)(slots + WARP);
  return Scratch{floats, floats + dim, floats + 2 * dim, slots};
}

// Side is the keys of one layer and head, and the values `values` slots further.
struct Side {
  const void* pages;
  int type, heads, head, dim, values;

  DEVICE_METHOD float load(int64_t slot, int d) const {
    return load_stored(pages, type, (slot * heads + head) * dim + d);
  }
};

// block takes up to a warp of keys from position `first` on, one a lane.
DEVICE void attend_block(const Scratch& s, const Side& side, const Pages& pages, const Shape& shape,
                         int position, int first, Softmax* state) {
  const int lane = thread_x() % WARP, key = first + lane;
  const bool seen = shape.sees(position, key);
  float score = -kInfinity;
  s.slots[lane] = -1;
  if (seen) {
    const int64_t slot = pages.slot(key);
    s.slots[lane] = slot;
    float product = 0.f;
    for (int d = 0; d < side.dim; d++) {
      product = __builtin_fmaf(s.query[d], side.load(slot, d), product);
    }
    score = shape.score(product);
  }
  float maximum = score;
  UNROLL for (int m = WARP / 2; m > 0; m /= 2) maximum = most(maximum, shuffle_xor(maximum, m));
  maximum = most(maximum, state->maximum);
  const float base = finite(maximum);
  const float weight = exp2_fast(score - base), old = exp2_fast(state->maximum - base);
  s.weights[lane] = weight;
  state->sum = __builtin_fmaf(state->sum, old, warp_sum(weight));
  state->maximum = maximum;
  sync_warp();
  for (int d = lane; d < side.dim; d += WARP) {
    float o = s.output[d] * old;
    for (int k = 0; k < WARP; k++) {
      if (s.slots[k] >= 0) {
        o = __builtin_fmaf(s.weights[k], side.load(s.slots[k] + side.values, d), o);
      }
    }
    s.output[d] = o;
  }
  sync_warp();
}

template <class A>
DEVICE void attend_any(A* out, const A* qkv, Side side, const int* words, const Shape& shape) {
  const Plan& plan = *(const Plan*)words;
  if (block_x() >= plan.any) return;
  const int* entry = words + plan.any_list + 2 * block_x();
  const Sequence& q = ((const Sequence*)(words + plan.sequence_list))[entry[0]];
  const int position = q.start + entry[1], head = block_y(), dim = side.dim;
  const int64_t row = q.first_row + entry[1];
  const A* from = qkv + (row * (shape.heads + 2 * shape.kv_heads) + head) * dim;
  const Pages pages(words + plan.page_list + q.pages, shape.page_size);
  side.head = head / (shape.heads / shape.kv_heads);
  const Scratch s = scratch(dim);
  for (int d = thread_x(); d < dim; d += WARP) {
    s.query[d] = to_float(from[d]);
    s.output[d] = 0.f;
  }
  sync_warp();
  Softmax state{-kInfinity, 0.f};
  const int low = shape.low(position);
  for (int first = 0; first <= position; first += WARP) {
    if (first + WARP > low || first < shape.sinks) {
      attend_block(s, side, pages, shape, position, first, &state);
    }
  }
  const float inverse = inverse_sum(state);
  A* to = out + (row * shape.heads + head) * dim;
  for (int d = thread_x(); d < dim; d += WARP) to[d] = from_float(s.output[d] * inverse, A{});
}

// Partial results are [item][head][dim + kPartialExtra]: the sums, then the state.
template <class A>
DEVICE void attend_combine(A* out, const float* partial, const int* words, int heads, int dim) {
  const Plan& plan = *(const Plan*)words;
  if (block_x() >= plan.rows) return;
  const int* row = words + plan.row_list + 4 * block_x();
  const int stride = dim + kPartialExtra;
  const float* parts = partial + ((int64_t)row[1] * heads + block_y()) * stride;
  A* to = out + ((int64_t)row[0] * heads + block_y()) * dim;
  for (int d = thread_x(); d < dim; d += threads_x()) {
    Softmax total{-kInfinity, 0.f};
    float o = 0.f;
    for (int i = 0; i < row[2]; i++) {
      const float* part = parts + (int64_t)i * heads * stride;
      o = fold(&total, Softmax{part[dim], part[dim + 1]}).of(o, part[d]);
    }
    to[d] = from_float(o * inverse_sum(total), A{});
  }
}

#define MAKE(name, A)                                                                          \
  KERNEL(32, attend_any_##name,                                                                \
         (A * out, const A* qkv, const void* pages, int type, const int* words, int heads,     \
          int kv_heads, int dim, int page_size, float scale, float cap, int window,            \
          int sinks)) {                                                                        \
    attend_any(out, qkv, Side{pages, type, kv_heads, 0, dim, page_size}, words,                \
               Shape{heads, kv_heads, page_size, scale, cap, window, sinks});                  \
  }                                                                                            \
  KERNEL(128, attend_combine_##name,                                                           \
         (A * out, const float* partial, const int* words, int heads, int dim)) {              \
    attend_combine(out, partial, words, heads, dim);                                           \
  }
FOR_ACTIVATIONS(MAKE)
#undef MAKE
