// What all attention kernels share: the plan of a batch, what a row may see, and how the parts of a
// row's result are folded. attention.go makes the plan and says why rows have the same bits in
// every kernel: tiles and splits are counted from position 0, and folded in order by fold.
#pragma once
#include "numbers.h"

constexpr int kTile = 64;    // keys of a tile
constexpr int kSplit = 512;  // keys of a split
constexpr int kTilesOfSplit = kSplit / kTile;
constexpr int kGroupRows = 16;   // query heads of one block of decode
constexpr int kPartialExtra = 4;  // floats beside a partial result

// Plan is the header of the words that attention.go makes.
struct Plan {
  int tiles, items, rows, any;
  int sequence_list, tile_list, item_list, row_list, any_list, page_list;
};

struct Sequence {
  int first_row, rows, start, pages;
};

// Shape is what all rows of a launch have in common.
struct Shape {
  int heads, kv_heads, page_size;
  float scale, cap;
  int window, sinks;

  // low is the first position after the sinks that a row at a position sees.
  DEVICE_METHOD int low(int position) const {
    return window > 0 ? most(0, position - window + 1) : 0;
  }
  DEVICE_METHOD bool sees(int position, int key) const {
    return key <= position && (window == 0 || key > position - window || key < sinks);
  }
  // next is the first tile from t on of which a row at or behind the position may see something.
  DEVICE_METHOD int next(int t, int position) const {
    const int first = low(position) / kTile;
    return t >= first || t * kTile < sinks ? t : first;
  }
  // score is what a product of a query and a key becomes, as a power of 2.
  DEVICE_METHOD float score(float product) const {
    if (cap == 0.f) return product * (scale * kLog2E);
    const float y = product * scale / cap;
    return cap * kLog2E * (1.f - 2.f * rcp_fast(1.f + exp2_fast(2.f * kLog2E * y)));
  }
};

// pages gives the places of positions in a layer: [page][key, value][slot][head][dim].
struct Pages {
  const int* table;
  int size, shift;  // shift is the size's logarithm, or -1

  DEVICE_METHOD Pages(const int* table_, int size_) : table(table_), size(size_), shift(-1) {
    if ((size & (size - 1)) == 0) shift = 31 - __builtin_clz(size);
  }
  // slot counts the slots of keys; those of values are `size` further. -1: the page is gone.
  DEVICE_METHOD int64_t slot(int position) const {
    const int page = shift >= 0 ? position >> shift : position / size;
    const int at = position - page * size;
    return table[page] < 0 ? -1 : (int64_t)table[page] * 2 * size + at;
  }
};

// Softmax is the running state of a row: the largest score and the sum of weights relative to it.
struct Softmax {
  float maximum, sum;
};

// Fold is how two parts of a row are weighed when they become one.
struct Fold {
  float old_part, new_part;

  DEVICE_METHOD float of(float o, float n) const {
    return __builtin_fmaf(n, new_part, o * old_part);
  }
};

// finite is the maximum that scores are taken relative to: any, where nothing was seen yet.
DEVICE float finite(float maximum) { return maximum == -kInfinity ? 0.f : maximum; }

DEVICE Fold fold(Softmax* total, const Softmax& part) {
  const float maximum = most(total->maximum, part.maximum);
  const float base = finite(maximum);
  const Fold f{exp2_fast(total->maximum - base), exp2_fast(part.maximum - base)};
  total->sum = f.of(total->sum, part.sum);
  total->maximum = maximum;
  return f;
}

// A row that sees nothing gives zeros.
DEVICE float inverse_sum(const Softmax& s) { return s.sum > 0.f ? rcp_fast(s.sum) : 0.f; }
