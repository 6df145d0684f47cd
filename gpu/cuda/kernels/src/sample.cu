// What the sampler needs of a row of logits without reading it whole.
#include "numbers.h"

// A candidate is better than another if it is larger, or as large and comes earlier. A NaN counts
// as infinite: a row with either is for the host to look at.
struct Best {
  float value;
  int index;

  DEVICE_METHOD void take(float v, int i) {
    if (v != v) v = kInfinity;
    if (v > value || (v == value && i < index)) {
      value = v;
      index = i;
    }
  }
};

constexpr int kNone = 0x7fffffff;

template <class A>
DEVICE void argmax(int* dst, const A* x, int width) {
  float* values = (float*)dynamic_shared();
  int* indices = (int*)(values + WARP);
  const A* row = x + (int64_t)block_x() * width;
  Best best{-kInfinity, kNone};
  for (int i = thread_x(); i < width; i += threads_x()) best.take(to_float(row[i]), i);
  UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2) {
    const float v = shuffle_xor(best.value, mask);
    best.take(v, shuffle_xor(best.index, mask));
  }
  if (thread_x() % WARP == 0) {
    values[thread_x() / WARP] = best.value;
    indices[thread_x() / WARP] = best.index;
  }
  sync_block();
  if (thread_x() > 0) return;
  for (int w = 0; w < threads_x() / WARP; w++) best.take(values[w], indices[w]);
  dst[block_x()] = best.value > -kInfinity && best.value < kInfinity ? best.index : -1;
}

constexpr int kBins = 256;       // of a digit of eight bits
constexpr int kCandidates = 256; // kernels.MaxTopK

// Room is the block's shared memory.
struct Room {
  int bins[kBins];
  uint64_t candidates[kCandidates];
  float sums[WARP];
  int found, bin, before, inside;
};

// order maps numbers to integers of the same order: NaN first, -0 like +0.
DEVICE uint32_t order(float v) {
  if (v != v) return 0;
  const uint32_t u = __builtin_bit_cast(uint32_t, v + 0.f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
DEVICE float unordered(uint32_t u) {
  if (u == 0) return -kInfinity;
  return __builtin_bit_cast(float, u & 0x80000000u ? u & 0x7fffffffu : ~u);
}

// Row gives each element a key of its own: larger numbers first, then lower indices.
template <class A>
struct Row {
  const A* x;
  int width;

  DEVICE_METHOD uint64_t key(int i) const {
    return (uint64_t)order(to_float(x[i])) << 32 | (0xffffffffu - (uint32_t)i);
  }
};

// narrow finds the digit at shift of the key that comes last among the best `want` of those whose
// digits above are those of prefix.
template <class A>
DEVICE void narrow(const Row<A>& row, Room* room, uint64_t prefix, uint64_t mask, int shift,
                   int want) {
  for (int b = thread_x(); b < kBins; b += threads_x()) room->bins[b] = 0;
  sync_block();
  for (int i = thread_x(); i < row.width; i += threads_x()) {
    const uint64_t key = row.key(i);
    if ((key & mask) == prefix) atomic_add(&room->bins[(key >> shift) & 255], 1);
  }
  sync_block();
  if (thread_x() == 0) {
    int bin = kBins - 1, before = 0;
    while (before + room->bins[bin] < want) before += room->bins[bin--];
    room->bin = bin;
    room->before = before;
    room->inside = room->bins[bin];
  }
  sync_block();
}

// threshold gives the least key of the `want` best ones, its digits below mask left open where all
// keys that agree with it so far belong to them.
template <class A>
DEVICE uint64_t threshold(const Row<A>& row, Room* room, int want, uint64_t* mask) {
  uint64_t prefix = 0;
  *mask = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    narrow(row, room, prefix, *mask, shift, want);
    prefix |= (uint64_t)room->bin << shift;
    *mask |= (uint64_t)255 << shift;
    want -= room->before;
    if (room->inside == want) break;
  }
  return prefix;
}

template <class A>
DEVICE void top_k(int* indices, float* values, float* sum_of_all, const Row<A>& row, int k,
                  float inverse_temperature) {
  Room* room = (Room*)dynamic_shared();
  uint64_t mask;
  const uint64_t least_key = threshold(row, room, k, &mask);
  if (thread_x() == 0) room->found = 0;
  sync_block();
  for (int i = thread_x(); i < row.width; i += threads_x()) {
    const uint64_t key = row.key(i);
    if ((key & mask) >= least_key) room->candidates[atomic_add(&room->found, 1)] = key;
  }
  sync_block();
  uint64_t top = 0;
  for (int i = 0; i < k; i++) top = room->candidates[i] > top ? room->candidates[i] : top;
  for (int i = thread_x(); i < k; i += threads_x()) {
    const uint64_t key = room->candidates[i];
    int rank = 0;
    for (int j = 0; j < k; j++) rank += room->candidates[j] > key;
    indices[rank] = (int)(0xffffffffu - (uint32_t)key);
    values[rank] = unordered((uint32_t)(key >> 32));
  }
  const float maximum = unordered((uint32_t)(top >> 32));
  float sum = 0.f;
  for (int i = thread_x(); i < row.width; i += threads_x()) {
    const float v = to_float(row.x[i]);
    sum += exp2_fast((v - maximum) * inverse_temperature * kLog2E);
  }
  sum = block_sum(sum, room->sums);
  if (thread_x() == 0) *sum_of_all = sum;
}

#define MAKE(name, A)                                                                     \
  KERNEL(512, argmax_##name, (int* dst, const A* x, int width)) { argmax(dst, x, width); } \
  KERNEL(512, top_k_##name,                                                               \
         (int* indices, float* values, float* sums, const A* x,                           \
          const float* inverse_temperatures, int width, int k)) {                         \
    const int64_t r = block_x();                                                          \
    top_k(indices + r * k, values + r * k, sums + r, Row<A>{x + r * width, width}, k,     \
          inverse_temperatures[r]);                                                       \
  }
FOR_ACTIVATIONS(MAKE)
#undef MAKE
