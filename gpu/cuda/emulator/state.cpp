// The emulated machine as the environment describes it, and the planted failures.
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace emulator {

static int64_t setting(const char* name, int64_t otherwise) {
  const char* text = getenv(name);
  return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

// plant reads "allocation=3,launch=10,lost=25", and says whether it knows all of it.
static bool plant(Faults* f, const char* text) {
  for (const char* at = text; at && *at;) {
    const auto is = [&](const char* name) { return strncmp(at, name, strlen(name)) == 0; };
    int64_t* to = is("allocation=") ? &f->allocation
                  : is("launch=")   ? &f->launch
                  : is("lost=")     ? &f->lost
                                    : nullptr;
    if (!to) return false;
    char* end;
    const char* digits = strchr(at, '=') + 1;
    const int64_t n = strtoll(digits, &end, 10);
    if (end == digits || n < 0 || (*end && *end != ',')) return false;
    *to = n;
    at = *end ? end + 1 : end;
  }
  return true;
}

Machine::Machine() {
  constexpr int kMostDevices = 8;
  seed = random_state = static_cast<uint32_t>(setting("ENGINE_EMULATOR_SEED", 0));
  memory = static_cast<size_t>(setting("ENGINE_EMULATOR_MEMORY", 2048)) << 20;
  capability = static_cast<int>(setting("ENGINE_EMULATOR_CAPABILITY", 90));
  const int64_t shared = setting("ENGINE_EMULATOR_SHARED", kMaxShared >> 10) << 10;
  this->shared = static_cast<int>(std::clamp<int64_t>(shared, kSharedWithoutAsking, kMaxShared));
  int64_t count = setting("ENGINE_EMULATOR_DEVICES", 1);
  count = count < 0 ? 0 : count > kMostDevices ? kMostDevices : count;
  devices.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < devices.size(); i++) {
    devices[i].primary.device = static_cast<int>(i);
    devices[i].peers.assign(devices.size(), false);
    defaults[i].device = static_cast<int>(i);
  }
  const char* wanted = getenv("ENGINE_EMULATOR_FAULTS");
  faults.known = plant(&faults, wanted);
  if (!faults.known) {
    fprintf(stderr, "emulated driver: ENGINE_EMULATOR_FAULTS=%s: want allocation=N, launch=N or "
            "lost=N, with commas between them\n", wanted);
  }
}

Machine& machine() {
  static auto* m = new Machine;  // lives as long as threads may call
  return *m;
}

Context*& current() {
  static thread_local Context* context;
  return context;
}

uint32_t Machine::random() {
  random_state = random_state * 1664525u + 1013904223u;
  return random_state >> 8;
}

int Machine::fail(int device, const Failure& f) {
  if (f.code == 0) return 0;
  log = f.text;
  fprintf(stderr, "emulated driver: error %d: %s\n", f.code, f.text.c_str());
  if (devices[device].lost == 0) devices[device].lost = f.code;
  return f.code;
}

Stream* or_default(void* handle, int device) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return &machine().defaults[device];
  return static_cast<Stream*>(handle);
}

bool strike(int64_t* countdown) { return *countdown > 0 && --*countdown == 0; }

}  // namespace emulator

using emulator::machine;

// engine_emulator_control changes the machine while it runs: "seed=2" or what
// ENGINE_EMULATOR_FAULTS may hold. It gives 0, or 1 for words that it does not know.
EXPORT int engine_emulator_control(const char* command) {
  std::lock_guard<std::mutex> hold(machine().lock);
  if (strncmp(command, "seed=", 5) == 0) {
    machine().seed = machine().random_state = static_cast<uint32_t>(atoi(command + 5));
    return 0;
  }
  return emulator::plant(&machine().faults, command) ? 0 : 1;
}

// engine_emulator_seconds is the virtual time at which the last work so far ended.
EXPORT double engine_emulator_seconds() {
  std::lock_guard<std::mutex> hold(machine().lock);
  return machine().now;
}

// engine_emulator_launches counts kernels and products that ran.
EXPORT int64_t engine_emulator_launches() {
  std::lock_guard<std::mutex> hold(machine().lock);
  return machine().launches;
}

// engine_emulator_log is the last failure in words; the text holds until the next one.
EXPORT const char* engine_emulator_log() {
  std::lock_guard<std::mutex> hold(machine().lock);
  return machine().log.c_str();
}
