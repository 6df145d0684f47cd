// The tensor core kernels of attention: prefill, and the splits of decode.
#include "attend_fast.h"

// A block has up to 64 query rows of one head.
template <class T, int D>
DEVICE void prefill(void* out, const void* qkv, const T* layer, int type, const int* words,
                    const Shape& shape, int stages, float* sums) {
  constexpr int kSlices = D > 128 ? 2 : 1;
  const Plan& plan = *(const Plan*)words;
  if (block_x() >= plan.tiles) return;
  const int* tile = words + plan.tile_list + 2 * block_x();
  const Sequence& sequence = ((const Sequence*)(words + plan.sequence_list))[tile[0]];
  const int head = block_y();
  constexpr int kRows = Attend<T, D, 4, kSlices>::kRows;
  if (sums) sums += ((int64_t)block_x() * blocks_y() + head) * kRows * D;
  Attend<T, D, 4, kSlices> a(
      shape, Pages(words + plan.page_list + sequence.pages, shape.page_size), stages, sums);
  a.layer = layer;
  a.kv_head = head / (shape.heads / shape.kv_heads);
  a.rows = least(a.kRows, sequence.rows - tile[1]);
  a.first_position = sequence.start + tile[1];
  a.kv_length = a.first_position + a.rows;
  a.step = 1;
  const int64_t row = sequence.first_row + tile[1];
  const int64_t stride = (int64_t)(shape.heads + 2 * shape.kv_heads) * D;
  a.load_queries(qkv, type, [=](int r) { return (row + r) * stride + (int64_t)head * D; });
  const int tiles = (a.kv_length + kTile - 1) / kTile;
  a.run(0, tiles, tiles > kTilesOfSplit);

  UNROLL for (int r = 0; r < 2; r++) {
    const int mine = a.warp_row() * 16 + a.lane() / 4 + r * 8;
    if (mine >= a.rows) continue;
    const float inverse = inverse_sum(a.state[r]);
    const int64_t to = ((row + mine) * shape.heads + head) * D;
    UNROLL for (int i = 0; i < a.kColumns; i++) {
      const int column = (a.slice() * a.kColumns + i) * 8 + (a.lane() & 3) * 2;
      store_stored2(out, type, to + column, a.o[i][2 * r] * inverse,
                    a.o[i][2 * r + 1] * inverse);
    }
  }
}

// A block has one split of one row, and up to 16 of the query heads of one key head.
template <class T, int D>
DEVICE void decode(float* partial, const void* qkv, const T* layer, int type, const int* words,
                   const Shape& shape, int stages) {
  const Plan& plan = *(const Plan*)words;
  if (block_x() >= plan.items) return;
  const int* item = words + plan.item_list + 2 * block_x();
  const Sequence& sequence = ((const Sequence*)(words + plan.sequence_list))[item[0]];
  const int group = shape.heads / shape.kv_heads;
  const int parts = (group + kGroupRows - 1) / kGroupRows;
  const int first = block_y() % parts * kGroupRows;
  Attend<T, D, 1, 4> a(
      shape, Pages(words + plan.page_list + sequence.pages, shape.page_size), stages, nullptr);
  a.layer = layer;
  a.kv_head = block_y() / parts;
  a.rows = least(kGroupRows, group - first);
  a.first_position = sequence.start;
  a.kv_length = sequence.start + 1;
  a.step = 0;
  const int head = a.kv_head * group + first;
  const int64_t row = (int64_t)sequence.first_row * (shape.heads + 2 * shape.kv_heads) + head;
  a.load_queries(qkv, type, [=](int r) { return (row + r) * D; });
  const int tiles = (a.kv_length + kTile - 1) / kTile;
  a.run(item[1] * kTilesOfSplit, least(tiles, (item[1] + 1) * kTilesOfSplit), false);

  UNROLL for (int r = 0; r < 2; r++) {
    const int mine = a.lane() / 4 + r * 8;
    if (mine >= a.rows) continue;
    float* to = partial + ((int64_t)block_x() * shape.heads + head + mine) * (D + kPartialExtra);
    UNROLL for (int i = 0; i < a.kColumns; i++) {
      const int column = (a.slice() * a.kColumns + i) * 8 + (a.lane() & 3) * 2;
      to[column] = a.o[i][2 * r];
      to[column + 1] = a.o[i][2 * r + 1];
    }
    if (a.slice() == 0 && (a.lane() & 3) == 0) {
      to[D] = a.state[r].maximum;
      to[D + 1] = a.state[r].sum;
    }
  }
}

#define MAKE_DIM(name, T, D)                                                                    \
  KERNEL((D > 128 ? 256 : 128), attend_prefill_##name##_##D,                                    \
         (void* out, const void* qkv, const T* layer, int type, const int* words, int heads,    \
          int kv_heads, int page_size, float scale, float cap, int window, int sinks,           \
          int stages, float* sums)) {                                                           \
    prefill<T, D>(out, qkv, layer, type, words,                                                 \
                  Shape{heads, kv_heads, page_size, scale, cap, window, sinks}, stages, sums);  \
  }                                                                                             \
  KERNEL(128, attend_decode_##name##_##D,                                                       \
         (float* partial, const void* qkv, const T* layer, int type, const int* words,          \
          int heads, int kv_heads, int page_size, float scale, float cap, int window,           \
          int sinks, int stages)) {                                                             \
    decode<T, D>(partial, qkv, layer, type, words,                                              \
                 Shape{heads, kv_heads, page_size, scale, cap, window, sinks}, stages);         \
  }
#define MAKE(name, T) MAKE_DIM(name, T, 64) MAKE_DIM(name, T, 128) MAKE_DIM(name, T, 256)
#ifdef ENGINE_FEW
MAKE_DIM(bf16, bf16, 64)
#else
MAKE(f16, f16)
MAKE(bf16, bf16)
#endif
#undef MAKE
#undef MAKE_DIM
