// The collective operations of a warp.
#include <string.h>

#include "block.h"

namespace emulator {

Block* running();

// meet waits for the whole warp, of which the last thread to come does the work of all.
Hand& Block::meet(Meeting kind) {
  Fiber& f = *static_cast<Fiber*>(fiber);
  Warp& w = warps_[f.warp];
  if (w.arrived > 0 && w.kind != kind) {
    fail(719, "threads of a warp are at different collectives");
  }
  w.kind = kind;
  if (++w.arrived == w.size) {
    hold_meeting(&w, f.warp);
    w.arrived = 0;
    w.meetings++;
  } else {
    f.state = Fiber::kAtMeeting;
    f.meeting = w.meetings;
    yield();
  }
  return f.hand;
}

// product is d += a·b for the fragments of m16n8k16 (PTX ISA, "Matrix Fragments for
// mma.m16n8k16"): lane l has rows l/4 and 8 further, and columns l%4*2 and the next.
static void product(Hand* const* hands) {
  float a[16][16], b[16][8];
  for (int l = 0; l < kWarp; l++) {
    const Hand& h = *hands[l];
    const int row = l / 4, column = l % 4 * 2;
    for (int i = 0; i < 8; i++) {
      const uint16_t bits = static_cast<uint16_t>(h.a[i / 2] >> (i % 2 * 16));
      const float x = h.half ? static_cast<float>(__builtin_bit_cast(_Float16, bits))
                             : __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
      a[row + i / 2 % 2 * 8][column + i % 2 + i / 4 * 8] = x;
    }
    for (int i = 0; i < 4; i++) {
      const uint16_t bits = static_cast<uint16_t>(h.b[i / 2] >> (i % 2 * 16));
      const float x = h.half ? static_cast<float>(__builtin_bit_cast(_Float16, bits))
                             : __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
      b[column + i % 2 + i / 2 * 8][row] = x;
    }
  }
  for (int row = 0; row < 16; row++) {
    float sum[8] = {};
    for (int column = 0; column < 8; column++) {
      sum[column] = hands[row % 8 * 4 + column / 2]->d[row / 8 * 2 + column % 2];
    }
    for (int k = 0; k < 16; k++) {
      for (int column = 0; column < 8; column++) sum[column] += a[row][k] * b[k][column];
    }
    for (int column = 0; column < 8; column++) {
      hands[row % 8 * 4 + column / 2]->d[row / 8 * 2 + column % 2] = sum[column];
    }
  }
}

// load reads four matrices of 8x8 numbers of 16 bits: lanes 8m to 8m+7 name the rows of matrix m.
void Block::load(int warp, bool transposed) {
  const auto row_of = [&](int lane) {
    return place.shared + fibers_[warp * kWarp + lane]->hand.value;
  };
  for (int m = 0; m < 4; m++) {
    for (int l = 0; l < kWarp; l++) {
      uint32_t both = 0;
      for (int i = 0; i < 2; i++) {
        int row = l / 4, column = l % 4 * 2 + i;
        if (transposed) {
          row = l % 4 * 2 + i;
          column = l / 4;
        }
        uint16_t x;
        memcpy(&x, row_of(8 * m + row) + 2 * column, 2);
        both |= static_cast<uint32_t>(x) << (16 * i);
      }
      fibers_[warp * kWarp + l]->hand.loaded[m] = both;
    }
  }
}

void Block::hold_meeting(Warp* w, int warp) {
  const int low = warp * kWarp;
  switch (w->kind) {
    case Meeting::kShuffle: {
      uint32_t values[kWarp] = {};
      for (int l = 0; l < w->size; l++) values[l] = fibers_[low + l]->hand.value;
      for (int l = 0; l < w->size; l++) {
        Hand& h = fibers_[low + l]->hand;
        h.value = values[(l ^ h.mask) & (kWarp - 1)];
      }
      break;
    }
    case Meeting::kLoad:
    case Meeting::kLoadTransposed:
      load(warp, w->kind == Meeting::kLoadTransposed);
      break;
    case Meeting::kMultiply: {
      Hand* hands[kWarp];
      for (int l = 0; l < kWarp; l++) hands[l] = &fibers_[low + l]->hand;
      product(hands);
      work.flops += 2 * 16 * 8 * 16;
      break;
    }
    case Meeting::kNone:
    case Meeting::kSync:
      break;
  }
}

static Hand& hand() { return static_cast<Fiber*>(fiber)->hand; }

void sync_warp() { running()->meet(Meeting::kSync); }

uint32_t shuffle_xor(uint32_t v, int mask) {
  hand().value = v;
  hand().mask = mask;
  return running()->meet(Meeting::kShuffle).value;
}

void load_matrix(uint32_t* r, uint32_t shared, bool transposed) {
  running()->check_shared(shared, "load_matrix");
  hand().value = shared;
  const Hand& h =
      running()->meet(transposed ? Meeting::kLoadTransposed : Meeting::kLoad);
  memcpy(r, h.loaded, sizeof h.loaded);
}

void multiply(float* d, const uint32_t* a, const uint32_t* b, bool half) {
  Hand& h = hand();
  memcpy(h.a, a, sizeof h.a);
  memcpy(h.b, b, sizeof h.b);
  memcpy(h.d, d, sizeof h.d);
  h.half = half;
  running()->meet(Meeting::kMultiply);
  memcpy(d, h.d, sizeof h.d);
}

}  // namespace emulator
