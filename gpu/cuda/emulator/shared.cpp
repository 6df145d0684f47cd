// Device memory that another process maps: a handle names the file that holds an allocation.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "state.h"

using namespace emulator;

namespace {

// Handle is what travels between processes, in the driver's 64 bytes.
struct Handle {
  char magic[8];
  int32_t process, file, device, unused;
  uint64_t offset, size, mapped;
  char rest[16];
};
static_assert(sizeof(Handle) == 64, "a handle has 64 bytes");

constexpr char kMagic[8] = {'e', 'm', 'u', 'i', 'p', 'c', '0', '1'};
constexpr size_t kPage = 4096;

}  // namespace

EXPORT int cuIpcGetMemHandle(void* out, uintptr_t p) {
  ENTER(call);
  const auto found = machine().allocations.find(p);
  if (found == machine().allocations.end() || found->second.foreign) return kInvalidValue;
  Allocation& a = found->second;
  if (const int code = machine().share(&a)) return code;
  Handle h{};
  memcpy(h.magic, kMagic, sizeof h.magic);
  h.process = getpid();
  h.file = a.file;
  h.device = a.device;
  h.offset = a.start - reinterpret_cast<uintptr_t>(a.map) - kPage;
  h.size = a.size;
  h.mapped = a.mapped - 2 * kPage;
  memcpy(out, &h, sizeof h);
  return call.done(0);
}

// Callers pass the handle by value: 64 bytes, which the ABI puts in memory.
// Memory of another device is mapped where the flag asks for the link to that.
EXPORT int cuIpcOpenMemHandle_v2(uintptr_t* p, Handle h, unsigned flags) {
  constexpr unsigned kLazyPeerAccess = 1;
  ENTER(call);
  if (memcmp(h.magic, kMagic, sizeof h.magic) != 0) return kInvalidValue;
  if (h.process == getpid()) return kInvalidContext;  // as the driver answers for one's own
  if (h.device < 0 || h.device >= static_cast<int>(machine().devices.size())) {
    return kInvalidDevice;
  }
  if (h.device != call.device()) {
    if (!(flags & kLazyPeerAccess)) return kPeerNotOn;
    call.on().peers[h.device] = true;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", h.process, h.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalidValue;
  void* m = mmap(nullptr, h.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (m == MAP_FAILED) return kOutOfMemory;
  *p = reinterpret_cast<uintptr_t>(m) + h.offset;
  machine().allocations[*p] =
      Allocation{*p, h.size, h.device, static_cast<char*>(m), h.mapped, -1, true};
  return call.done(0);
}

EXPORT int cuIpcCloseMemHandle(uintptr_t p) {
  ENTER(call);
  const auto found = machine().allocations.find(p);
  if (found == machine().allocations.end() || !found->second.foreign) return kInvalidValue;
  return call.done(machine().release(p));
}

// engine_emulator_enqueue puts a product of the emulated library in a stream.
EXPORT int engine_emulator_enqueue(void* stream, int64_t flops, int64_t bytes,
                                   void (*run)(void*), void* data) {
  ENTER(call);
  Stream* s = or_default(stream, call.device());
  if (!s->capture && strike(&machine().faults.launch)) return kOutOfResources;
  std::shared_ptr<void> owned(data, [](void* p) { free(p); });
  Op op;
  op.what = "product";
  op.engine = kCompute;
  op.seconds = s->capture ? kGraphLaunchSeconds : kLaunchSeconds;
  op.run = [=](Work* done) {
    install_fault_handler();
    const void* at = nullptr;
    if (catch_fault(&at)) return Failure{kIllegalAddress, "it touched memory that is not there"};
    run(owned.get());
    release_fault();
    done->flops += flops;
    done->bytes += bytes;
    return Failure{};
  };
  return call.done(machine().put(s, std::move(op)));
}
