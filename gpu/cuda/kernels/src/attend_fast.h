// Attention on tensor cores: online softmax over tiles of 64 keys (Dao, "FlashAttention-2", 2023),
// keys and values copied asynchronously one tile ahead. Prefill takes 64 rows of one head, decode
// the heads of one row that share a key head. Both are this code, so that they give the same bits:
// a warp has 16 rows, and with several warps to the same rows each does the scores by itself and
// owns a slice of the output's columns. Where a block may have little shared memory there is room
// for one tile, and the next is copied when all are done with it; no number changes by that.
#pragma once
#include "attention.h"

// T is how keys and values are stored, D the size of a head, ROW_WARPS how many warps have rows of
// their own, SLICES how many share the columns of the same rows.
template <class T, int D, int ROW_WARPS, int SLICES>
struct Attend {
  static constexpr int kThreads = ROW_WARPS * SLICES * WARP;
  static constexpr int kRows = ROW_WARPS * 16;
  static constexpr int kChunks = D / 8;  // of 16 bytes in a row
  static constexpr int kRowBytes = D * 2;
  static constexpr int kTileBytes = kTile * kRowBytes;
  static constexpr int kColumns = D / SLICES / 8;  // blocks of 8 columns that a warp owns
  static constexpr bool kKeep = D <= 128;          // queries stay in registers

  // Where things are in shared memory: queries, `stages` tiles of keys and as many of values. The
  // folded sums follow, or lie in the device's memory.
  uint32_t queries, keys, values;
  float* folded;
  const int stages;  // 1 or 2

  const Shape& shape;
  const Pages pages;
  const T* layer;
  int kv_head, kv_length;
  int rows;            // that there are, of kRows
  int first_position;  // of row 0
  int step;            // 1: each row has a position of its own, 0: all have the same

  Softmax state[2], total[2];  // of the thread's rows, lane/4 and 8 further
  float o[kColumns][4];
  uint32_t q[kKeep ? D / 16 : 1][4];

  // sums are the block's folded sums in the device's memory; nullptr: they are shared.
  DEVICE_METHOD Attend(const Shape& shape_, const Pages& pages_, int stages_, float* sums)
      : stages(stages_), shape(shape_), pages(pages_) {
    unsigned char* room = dynamic_shared();
    queries = shared_address(room);
    keys = queries + kRows * kRowBytes;
    values = keys + stages * kTileBytes;
    folded = sums ? sums : (float*)(room + kRows * kRowBytes + 2 * stages * kTileBytes);
  }

  DEVICE_METHOD int warp_row() const { return thread_x() / WARP / SLICES; }
  DEVICE_METHOD int slice() const { return thread_x() / WARP % SLICES; }
  DEVICE_METHOD int lane() const { return thread_x() % WARP; }

  // at is the place of a chunk of 16 bytes of a row; rows are swizzled, so that eight rows of one
  // column lie in all banks.
  DEVICE_METHOD static uint32_t at(int row, int chunk) {
    return (uint32_t)(row * kRowBytes + ((chunk ^ (row & 7)) * 16));
  }

  // load_queries brings rows of a buffer in any type; `from` gives the element where a row starts.
  template <class From>
  DEVICE_METHOD void load_queries(const void* qkv, int type, From from) {
    unsigned char* room = dynamic_shared();
    for (int c = thread_x(); c < kRows * kChunks; c += kThreads) {
      const int row = c / kChunks, chunk = c % kChunks;
      float v[8] = {};
      if (row < rows) load_stored8(v, qkv, type, from(row) + chunk * 8, 8);
      *(Vec16*)(room + at(row, chunk)) = Vec16{pack2(v[0], v[1], T{}), pack2(v[2], v[3], T{}),
                                               pack2(v[4], v[5], T{}), pack2(v[6], v[7], T{})};
    }
  }

  // fetch starts the copy of a tile's keys and values. What no row may see is zero: the weight of a
  // hidden key is 0, and 0 times what a stale slot holds need not be.
  DEVICE_METHOD void fetch(int t, int buffer) const {
    for (int c = thread_x(); c < kTile * kChunks; c += kThreads) {
      const int row = c / kChunks, chunk = c % kChunks, position = t * kTile + row;
      const int64_t slot = wanted(position) ? pages.slot(position) : -1;
      const int64_t key = slot < 0 ? 0 : (slot * shape.kv_heads + kv_head) * D + chunk * 8;
      const int64_t value =
          slot < 0 ? 0 : ((slot + pages.size) * shape.kv_heads + kv_head) * D + chunk * 8;
      const uint32_t to = (uint32_t)(buffer * kTileBytes) + at(row, chunk);
      copy_async(keys + to, layer + key, slot < 0 ? 0 : 16);
      copy_async(values + to, layer + value, slot < 0 ? 0 : 16);
    }
    copy_commit();
  }

  // wanted says whether some row of the block may see a position.
  DEVICE_METHOD bool wanted(int position) const {
    return position < kv_length &&
           (position >= shape.low(first_position) || position < shape.sinks);
  }

  DEVICE_METHOD void query(uint32_t* a, int k) const {
    load_matrix(a, queries + at(warp_row() * 16 + (lane() & 15), k * 2 + (lane() >> 4)));
  }

  // products leaves q·k of the tile in s: 8 blocks of 8 keys.
  DEVICE_METHOD void products(float (&s)[8][4], uint32_t tile) const {
    UNROLL for (int n = 0; n < 8; n++) {
      UNROLL for (int j = 0; j < 4; j++) s[n][j] = 0.f;
    }
    UNROLL for (int k = 0; k < D / 16; k++) {
      uint32_t a[4];
      if (!kKeep) query(a, k);
      UNROLL for (int n = 0; n < 4; n++) {
        uint32_t b[4];
        const int row = n * 16 + (lane() & 7) + ((lane() >> 4) << 3);
        load_matrix(b, tile + at(row, k * 2 + ((lane() >> 3) & 1)));
        multiply(s[2 * n], kKeep ? q[kKeep ? k : 0] : a, b, T{});
        multiply(s[2 * n + 1], kKeep ? q[kKeep ? k : 0] : a, b + 2, T{});
      }
    }
  }

  DEVICE_METHOD int position(int half) const {
    return first_position + step * (warp_row() * 16 + lane() / 4 + half * 8);
  }

  // weigh turns products into weights relative to the largest score so far, and gives the factors
  // of what was summed before.
  DEVICE_METHOD void weigh(float (&s)[8][4], int t, float (&old)[2]) {
    float maximum[2] = {state[0].maximum, state[1].maximum};
    const bool whole = shape.window == 0 && (t + 1) * kTile <= position(0) - step * (lane() / 4);
    UNROLL for (int n = 0; n < 8; n++) {
      UNROLL for (int j = 0; j < 4; j++) {
        const int key = t * kTile + n * 8 + (lane() & 3) * 2 + (j & 1);
        const bool seen = whole || shape.sees(position(j >> 1), key);
        s[n][j] = seen ? shape.score(s[n][j]) : -kInfinity;
        maximum[j >> 1] = most(maximum[j >> 1], s[n][j]);
      }
    }
    UNROLL for (int r = 0; r < 2; r++) {
      maximum[r] = most(maximum[r], shuffle_xor(maximum[r], 1));
      maximum[r] = most(maximum[r], shuffle_xor(maximum[r], 2));
      const float base = finite(maximum[r]);
      old[r] = exp2_fast(state[r].maximum - base);
      state[r].maximum = maximum[r];
      state[r].sum *= old[r];
      UNROLL for (int n = 0; n < 8; n++) {
        UNROLL for (int j = 0; j < 2; j++) {
          s[n][2 * r + j] = exp2_fast(s[n][2 * r + j] - base);
          state[r].sum += s[n][2 * r + j];
        }
      }
    }
  }

  // add_values adds the tile's values, weighed, to the warp's columns.
  DEVICE_METHOD void add_values(const float (&s)[8][4], uint32_t tile, const float (&old)[2]) {
    UNROLL for (int i = 0; i < kColumns; i++) {
      UNROLL for (int j = 0; j < 4; j++) o[i][j] *= old[j >> 1];
    }
    UNROLL for (int k = 0; k < 4; k++) {
      const uint32_t a[4] = {pack2(s[2 * k][0], s[2 * k][1], T{}),
                             pack2(s[2 * k][2], s[2 * k][3], T{}),
                             pack2(s[2 * k + 1][0], s[2 * k + 1][1], T{}),
                             pack2(s[2 * k + 1][2], s[2 * k + 1][3], T{})};
      UNROLL for (int n = 0; n < kColumns / 2; n++) {
        uint32_t b[4];
        const int chunk = slice() * kColumns + n * 2 + (lane() >> 4);
        load_matrix_transposed(b, tile + at(k * 16 + (lane() & 15), chunk));
        multiply(o[2 * n], a, b, T{});
        multiply(o[2 * n + 1], a, b + 2, T{});
      }
    }
  }

  DEVICE_METHOD void clear_split() {
    UNROLL for (int r = 0; r < 2; r++) state[r] = Softmax{-kInfinity, 0.f};
    UNROLL for (int i = 0; i < kColumns; i++) {
      UNROLL for (int j = 0; j < 4; j++) o[i][j] = 0.f;
    }
  }

  // end_split makes the sums of the four lanes of a row one.
  DEVICE_METHOD void end_split() {
    UNROLL for (int r = 0; r < 2; r++) {
      state[r].sum += shuffle_xor(state[r].sum, 1);
      state[r].sum += shuffle_xor(state[r].sum, 2);
    }
  }

  // fold_split adds the split to the rows' totals. Each thread has its own part of `folded`.
  DEVICE_METHOD void fold_split() {
    const Fold f[2] = {fold(&total[0], state[0]), fold(&total[1], state[1])};
    UNROLL for (int i = 0; i < kColumns; i++) {
      UNROLL for (int j = 0; j < 4; j++) {
        float* sum = folded + (i * 4 + j) * kThreads + thread_x();
        *sum = f[j >> 1].of(*sum, o[i][j]);
      }
    }
  }

  DEVICE_METHOD void start_fold() {
    UNROLL for (int r = 0; r < 2; r++) total[r] = Softmax{-kInfinity, 0.f};
    UNROLL for (int i = 0; i < kColumns * 4; i++) folded[i * kThreads + thread_x()] = 0.f;
  }

  DEVICE_METHOD void finish_fold() {
    UNROLL for (int r = 0; r < 2; r++) state[r] = total[r];
    UNROLL for (int i = 0; i < kColumns; i++) {
      UNROLL for (int j = 0; j < 4; j++) o[i][j] = folded[(i * 4 + j) * kThreads + thread_x()];
    }
  }

  // run takes the tiles [from, to) that rows may see. Where it ends, o and state are of the only
  // split, or with `many` of all of them.
  DEVICE_METHOD void run(int from, int to, bool many) {
    clear_split();
    if (many) start_fold();
    int t = shape.next(from, first_position);
    if (t < to) fetch(t, 0);
    bool first = true;
    for (int buffer = 0; t < to; buffer ^= stages - 1) {
      const int next = shape.next(t + 1, first_position);
      if (next < to && stages > 1) {
        fetch(next, buffer ^ 1);
        copy_wait<1>();
      } else {
        copy_wait<0>();
      }
      sync_block();
      if (kKeep && first) {
        UNROLL for (int k = 0; k < D / 16; k++) query(q[kKeep ? k : 0], k);
      }
      first = false;
      take(t, buffer);
      sync_block();
      if (next < to && stages == 1) fetch(next, buffer);
      const bool ends = next >= to || next / kTilesOfSplit != t / kTilesOfSplit;
      if (ends) end_split();
      if (ends && many) {
        fold_split();
        clear_split();
      }
      t = next;
    }
    if (many) finish_fold();
  }

  // take adds one tile that is in shared memory.
  DEVICE_METHOD void take(int t, int buffer) {
    float s[8][4], old[2];
    products(s, keys + (uint32_t)(buffer * kTileBytes));
    weigh(s, t, old);
    add_values(s, values + (uint32_t)(buffer * kTileBytes), old);
  }
};
