// Device memory: pages of its own between guard pages, full of NaNs when it is new, and out of
// reach once it is free. Addresses do not come back.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

namespace emulator {

static constexpr size_t kPage = 4096;
static constexpr size_t kAlignment = 256;
static constexpr size_t kPoisoned = 256 << 20;  // at the start of an allocation

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

int Machine::allocate(int device, size_t size, uintptr_t* at) {
  if (size == 0) return kInvalidValue;
  if (strike(&faults.allocation)) return kOutOfMemory;
  if (devices[device].used + size > memory) return kOutOfMemory;
  const size_t pages = round_up(size, kPage);
  void* p = mmap(nullptr, pages + 2 * kPage, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return kOutOfMemory;
  char* map = static_cast<char*>(p);
  if (mprotect(map + kPage, pages, PROT_READ | PROT_WRITE)) {
    munmap(map, pages + 2 * kPage);
    return kOutOfMemory;
  }
  memset(map + kPage, 0xff, pages < kPoisoned ? pages : kPoisoned);
  // The end is as near to the guard page as the alignment allows.
  const size_t offset = (pages - size) / kAlignment * kAlignment;
  *at = reinterpret_cast<uintptr_t>(map) + kPage + offset;
  allocations[*at] = Allocation{*at, size, device, map, pages + 2 * kPage, -1, false};
  devices[device].used += size;
  return 0;
}

int Machine::release(uintptr_t at) {
  const auto found = allocations.find(at);
  if (found == allocations.end()) return kInvalidValue;
  drain_all();
  const Allocation& a = found->second;
  if (a.foreign) {
    munmap(a.map, a.mapped);
  } else {
    mmap(a.map, a.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    devices[a.device].used -= a.size;
  }
  if (a.file >= 0) close(a.file);
  allocations.erase(found);
  return 0;
}

const Allocation* Machine::find(uintptr_t at, size_t size) const {
  auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return nullptr;
  const Allocation& a = (--next)->second;
  return at + size <= a.start + a.size ? &a : nullptr;
}

static bool covers(const std::map<uintptr_t, size_t>& ranges, uintptr_t at, size_t size) {
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return false;
  --next;
  return at + size <= next->first + next->second;
}

bool Machine::is_pinned(uintptr_t at, size_t size) const {
  return covers(pinned, at, size) || covers(registered, at, size);
}

// share moves an allocation into a file without a name, where it is, so that another process can
// map it.
int Machine::share(Allocation* a) {
  if (a->file >= 0) return 0;
  drain_all();
  const size_t pages = a->mapped - 2 * kPage;
  const int file = memfd_create("engine-emulated-gpu", MFD_CLOEXEC);
  if (file < 0) return kOutOfMemory;
  char* from = a->map + kPage;
  for (size_t done = 0; done < pages;) {
    const ssize_t n = write(file, from + done, pages - done);
    if (n <= 0) {
      close(file);
      return kOutOfMemory;
    }
    done += static_cast<size_t>(n);
  }
  if (mmap(from, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    close(file);
    return kOutOfMemory;
  }
  a->file = file;
  return 0;
}

}  // namespace emulator
