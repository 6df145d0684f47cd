// Memory and copies, as the driver's functions. Copies from and to memory that is not pinned wait
// for the stream, as on a real driver.
#include <string.h>
#include <sys/mman.h>

#include "state.h"

using namespace emulator;

EXPORT int cuMemAlloc_v2(uintptr_t* p, size_t size) {
  ENTER(call);
  return call.done(machine().allocate(call.device(), size, p));
}

EXPORT int cuMemFree_v2(uintptr_t p) {
  ENTER(call);
  return call.done(machine().release(p));
}

EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER(call);
  *total = machine().memory;
  *free = machine().memory - call.on().used;
  return 0;
}

EXPORT int cuMemGetAddressRange_v2(uintptr_t* start, size_t* size, uintptr_t p) {
  ENTER(call);
  const Allocation* a = machine().find(p, 1);
  if (!a) return kNotFound;
  *start = a->start;
  *size = a->size;
  return 0;
}

EXPORT int cuMemHostAlloc(void** p, size_t size, unsigned) {
  ENTER(call);
  if (size == 0) return kInvalidValue;
  if (strike(&machine().faults.allocation)) return kOutOfMemory;
  void* m = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return kOutOfMemory;
  memset(m, 0xff, size);
  machine().pinned[reinterpret_cast<uintptr_t>(m)] = size;
  *p = m;
  return call.done(0);
}

EXPORT int cuMemAllocHost_v2(void** p, size_t size) { return cuMemHostAlloc(p, size, 0); }

EXPORT int cuMemFreeHost(void* p) {
  ENTER(call);
  const auto found = machine().pinned.find(reinterpret_cast<uintptr_t>(p));
  if (found == machine().pinned.end()) return kInvalidValue;
  machine().drain_all();
  munmap(p, found->second);
  machine().pinned.erase(found);
  return call.done(0);
}

EXPORT int cuMemHostRegister_v2(void* p, size_t size, unsigned) {
  ENTER(call);
  const auto at = reinterpret_cast<uintptr_t>(p);
  if (size == 0) return kInvalidValue;
  if (machine().is_pinned(at, 1)) return kAlreadyRegistered;
  machine().registered[at] = size;
  return call.done(0);
}

EXPORT int cuMemHostUnregister(void* p) {
  ENTER(call);
  machine().drain_all();
  return machine().registered.erase(reinterpret_cast<uintptr_t>(p)) ? call.done(0)
                                                                    : kNotRegistered;
}

EXPORT int cuMemHostGetDevicePointer_v2(uintptr_t* device, void* p, unsigned) {
  ENTER(call);
  *device = reinterpret_cast<uintptr_t>(p);
  return machine().is_pinned(*device, 1) ? 0 : kInvalidValue;
}

namespace {

// Transfer is one copy. Device sides are checked to be memory of a device.
struct Transfer {
  uintptr_t to, from;
  size_t size;
  bool to_device, from_device;

  bool valid() const {
    return (!to_device || machine().find(to, size)) && (!from_device || machine().find(from, size));
  }
  bool pinned() const {
    if (!to_device) return machine().is_pinned(to, size);
    return from_device || machine().is_pinned(from, size);
  }
  Engine engine(bool link) const {
    if (link) return kLink;
    return !from_device ? kIn : !to_device ? kOut : kCompute;
  }
  double seconds(bool link) const {
    if (link) return kCopySeconds + static_cast<double>(size) / kLinkRate;
    const bool within = from_device && to_device;  // read and written in the same memory
    return kCopySeconds + static_cast<double>(size) / (within ? kMemoryRate / 2 : kHostRate);
  }
};

}  // namespace

static void move(const Transfer& t) {
  memmove(reinterpret_cast<void*>(t.to), reinterpret_cast<const void*>(t.from), t.size);
}

static int copy(const Call& call, const Transfer& t, Stream* s, bool wait) {
  if (!t.valid()) return kInvalidValue;
  if (t.size == 0) return call.done(0);
  if (s->capture && (wait || !t.pinned())) {
    s->capture->broken = true;
    return kCaptureUnsupported;
  }
  if (!wait && !t.pinned()) {
    machine().drain(s);
    if (call.on().lost == 0) move(t);
    return call.done(0);
  }
  // Memory of two devices goes over the link between them, if it is on.
  bool link = false;
  if (t.to_device && t.from_device) {
    const int a = machine().find(t.to, t.size)->device, b = machine().find(t.from, t.size)->device;
    link = a != b;
    if (link && !machine().devices[a].peers[b] && !machine().devices[b].peers[a]) {
      return kInvalidValue;
    }
  }
  Op op;
  op.what = "copy";
  op.engine = t.engine(link);
  op.seconds = t.seconds(link);
  op.run = [t](Work*) {
    if (!t.valid()) return Failure{kIllegalAddress, "memory was freed before the copy ran"};
    move(t);
    return Failure{};
  };
  machine().put(s, std::move(op));
  if (wait) machine().drain(s);
  return call.done(0);
}

static uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

EXPORT int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t size, void* s) {
  ENTER(call);
  return copy(call, Transfer{to, address(from), size, true, false},
              or_default(s, call.device()), false);
}

EXPORT int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t size, void* s) {
  ENTER(call);
  return copy(call, Transfer{address(to), from, size, false, true},
              or_default(s, call.device()), false);
}

EXPORT int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t size, void* s) {
  ENTER(call);
  return copy(call, Transfer{to, from, size, true, true}, or_default(s, call.device()), false);
}

EXPORT int cuMemcpyHtoD_v2(uintptr_t to, const void* from, size_t size) {
  ENTER(call);
  return copy(call, Transfer{to, address(from), size, true, false},
              or_default(nullptr, call.device()), true);
}

EXPORT int cuMemcpyDtoH_v2(void* to, uintptr_t from, size_t size) {
  ENTER(call);
  return copy(call, Transfer{address(to), from, size, false, true},
              or_default(nullptr, call.device()), true);
}

EXPORT int cuMemcpyDtoD_v2(uintptr_t to, uintptr_t from, size_t size) {
  ENTER(call);
  return copy(call, Transfer{to, from, size, true, true}, or_default(nullptr, call.device()),
              true);
}

EXPORT int cuMemcpyPeerAsync(uintptr_t to, void*, uintptr_t from, void*, size_t size, void* s) {
  return cuMemcpyDtoDAsync_v2(to, from, size, s);
}

EXPORT int cuMemcpyPeer(uintptr_t to, void*, uintptr_t from, void*, size_t size) {
  return cuMemcpyDtoD_v2(to, from, size);
}

// either copies between memory of any kind, which its addresses tell.
static int either(uintptr_t to, uintptr_t from, size_t size, void* stream, bool wait) {
  ENTER(call);
  const Transfer t{to, from, size, machine().find(to, size) != nullptr,
                   machine().find(from, size) != nullptr};
  return copy(call, t, or_default(stream, call.device()), wait);
}

EXPORT int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t size, void* s) {
  return either(to, from, size, s, false);
}

EXPORT int cuMemcpy(uintptr_t to, uintptr_t from, size_t size) {
  return either(to, from, size, nullptr, true);
}

template <class T>
static int set(uintptr_t to, T value, size_t count, void* handle, bool wait) {
  ENTER(call);
  if (!machine().find(to, count * sizeof(T))) return kInvalidValue;
  Stream* s = or_default(handle, call.device());
  if (s->capture && wait) return kCaptureUnsupported;
  Op op;
  op.what = "set memory";
  op.engine = kCompute;
  op.seconds = kCopySeconds + static_cast<double>(count * sizeof(T)) / kMemoryRate;
  op.run = [=](Work*) {
    T* p = reinterpret_cast<T*>(to);
    for (size_t i = 0; i < count; i++) p[i] = value;
    return Failure{};
  };
  machine().put(s, std::move(op));
  if (wait) machine().drain(s);
  return call.done(0);
}

EXPORT int cuMemsetD8Async(uintptr_t to, uint8_t v, size_t n, void* s) {
  return set(to, v, n, s, false);
}
EXPORT int cuMemsetD16Async(uintptr_t to, uint16_t v, size_t n, void* s) {
  return set(to, v, n, s, false);
}
EXPORT int cuMemsetD32Async(uintptr_t to, uint32_t v, size_t n, void* s) {
  return set(to, v, n, s, false);
}
EXPORT int cuMemsetD8_v2(uintptr_t to, uint8_t v, size_t n) { return set(to, v, n, nullptr, true); }
EXPORT int cuMemsetD16_v2(uintptr_t to, uint16_t v, size_t n) {
  return set(to, v, n, nullptr, true);
}
EXPORT int cuMemsetD32_v2(uintptr_t to, uint32_t v, size_t n) {
  return set(to, v, n, nullptr, true);
}
