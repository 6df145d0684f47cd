// Copies of pages, and their way to and from packed memory. Sizes are in bytes: side is what one
// token's key, or its value, takes in one layer.
#include "numbers.h"

// copy_bytes copies a part of [0, bytes), a multiple of 2, with a step of all threads of all parts.
DEVICE void copy_bytes(uint8_t* to, const uint8_t* from, int64_t bytes, int part, int parts) {
  const int64_t first = (int64_t)part * threads_x() + thread_x();
  const int64_t step = (int64_t)parts * threads_x();
  int64_t done = 0;
  TRAFFIC(bytes / parts / threads_x() * 2);
  if (aligned(to) && aligned(from)) {
    done = bytes / 16 * 16;
    for (int64_t i = first; i < bytes / 16; i += step) ((Vec16*)to)[i] = ((const Vec16*)from)[i];
  }
  for (int64_t i = done / 2 + first; i < bytes / 2; i += step) {
    ((uint16_t*)to)[i] = ((const uint16_t*)from)[i];
  }
}

// Copies are {from, to, tokens, 0}; a block a copy and layer.
KERNEL(256, kv_copy,
       (uint8_t* pool, const int* copies, int layers, int pages, int page_size, int side)) {
  const int* copy = copies + 4 * block_x();
  uint8_t* layer = pool + (int64_t)block_y() * pages * 2 * page_size * side;
  for (int s = 0; s < 2; s++) {
    uint8_t* to = layer + ((int64_t)copy[1] * 2 + s) * page_size * side;
    const uint8_t* from = layer + ((int64_t)copy[0] * 2 + s) * page_size * side;
    copy_bytes(to, from, (int64_t)copy[2] * side, 0, 1);
  }
}

// Place is one range's keys or values in a page and in packed memory. Ranges are {page, first,
// count, slots before}.
struct Place {
  int64_t page, packed, bytes;
};

DEVICE Place place(const int* range, int s, int page_size, int side) {
  const int64_t count = range[2];
  return Place{(((int64_t)range[0] * 2 + s) * page_size + range[1]) * side,
               ((int64_t)range[3] * 2 + s * count) * side, count * side};
}

KERNEL(256, kv_pack,
       (uint8_t* packed, const uint8_t* layer, const int* ranges, int count, int page_size,
        int side)) {
  if (block_x() >= count) return;
  const Place p = place(ranges + 4 * block_x(), block_y() & 1, page_size, side);
  copy_bytes(packed + p.packed, layer + p.page, p.bytes, block_y() / 2, blocks_y() / 2);
}

KERNEL(256, kv_unpack,
       (const uint8_t* packed, uint8_t* layer, const int* ranges, int count, int page_size,
        int side)) {
  if (block_x() >= count) return;
  const Place p = place(ranges + 4 * block_x(), block_y() & 1, page_size, side);
  copy_bytes(layer + p.page, packed + p.packed, p.bytes, block_y() / 2, blocks_y() / 2);
}
