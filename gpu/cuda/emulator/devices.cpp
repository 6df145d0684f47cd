// Devices and contexts, as the driver's functions.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "state.h"

using namespace emulator;

static bool is_device(int d) {
  return d >= 0 && d < static_cast<int>(machine().devices.size());
}

EXPORT int cuInit(unsigned) {
  if (!machine().faults.known) return kInvalidValue;
  return machine().devices.empty() ? kNoDevice : 0;
}

EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

EXPORT int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(machine().devices.size());
  return 0;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return 0;
}

EXPORT int cuDeviceGetName(char* name, int length, int device) {
  if (!is_device(device)) return kInvalidDevice;
  snprintf(name, static_cast<size_t>(length), "Emulated sm_%d", machine().capability);
  return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (!is_device(device)) return kInvalidDevice;
  *bytes = machine().memory;
  return 0;
}

// The attributes that programs ask for, by the driver's numbers; an H200's answers.
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) return kInvalidDevice;
  static const std::map<int, int> known = {
      {1, kMaxThreads},            // threads of a block
      {2, kMaxThreads}, {3, kMaxThreads}, {4, 64},
      {5, 0x7fffffff}, {6, 65535}, {7, 65535},
      {8, kSharedWithoutAsking},   // shared memory of a block
      {10, kWarp},
      {12, 65536},                 // registers of a block
      {13, 1980000},               // kilohertz
      {16, 132},                   // multiprocessors
      {19, 1},                     // maps host memory
      {36, 3201000}, {37, 6144},   // memory clock and bus
      {38, 60 << 20},              // second-level cache
      {39, 2048},                  // threads of a multiprocessor
      {40, 3},                     // copy engines
      {41, 1},                     // one address space
      {82, 65536},
  };
  const auto found = known.find(attribute);
  *value = attribute == 75   ? machine().capability / 10
           : attribute == 76 ? machine().capability % 10
           : attribute == 81 ? machine().shared + 1024  // of a multiprocessor
           : attribute == 97 ? machine().shared         // of a block that asks
           : found != known.end() ? found->second
                                  : 0;
  return 0;
}

EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) {
  if (!is_device(device)) return kInvalidDevice;
  memset(uuid, 0, 16);
  memcpy(uuid, "emulated", 8);
  uuid[15] = static_cast<unsigned char>(device);
  return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(Context** context, int device) {
  if (!is_device(device)) return kInvalidDevice;
  std::lock_guard<std::mutex> hold(machine().lock);
  *context = &machine().devices[device].primary;
  (*context)->users++;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  if (!is_device(device)) return kInvalidDevice;
  std::lock_guard<std::mutex> hold(machine().lock);
  Context& c = machine().devices[device].primary;
  if (c.users == 0) return kInvalidContext;
  if (--c.users > 0) return 0;
  // What the context held goes with it, and so does its error.
  machine().drain_all();
  std::vector<uintptr_t> mine;
  for (const auto& [at, a] : machine().allocations) {
    if (a.device == device) mine.push_back(at);
  }
  for (uintptr_t at : mine) machine().release(at);
  machine().devices[device].lost = 0;
  return 0;
}

EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  if (!is_device(device)) return kInvalidDevice;
  std::lock_guard<std::mutex> hold(machine().lock);
  machine().devices[device].lost = 0;
  return 0;
}

EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) {
  return is_device(device) ? 0 : kInvalidDevice;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (!is_device(device)) return kInvalidDevice;
  *flags = 0;
  *active = machine().devices[device].primary.users > 0;
  return 0;
}

EXPORT int cuCtxCreate_v2(Context** context, unsigned, int device) {
  if (!is_device(device)) return kInvalidDevice;
  current() = *context = new Context{device};
  return 0;
}

EXPORT int cuCtxDestroy_v2(Context* context) {
  if (current() == context) current() = nullptr;
  delete context;
  return 0;
}

EXPORT int cuCtxSetCurrent(Context* context) {
  current() = context;
  return 0;
}

EXPORT int cuCtxGetCurrent(Context** context) {
  *context = current();
  return 0;
}

EXPORT int cuCtxGetDevice(int* device) {
  if (!current()) return kInvalidContext;
  *device = current()->device;
  return 0;
}

EXPORT int cuCtxGetApiVersion(Context*, unsigned* version) {
  *version = 3020;
  return 0;
}

EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}

EXPORT int cuCtxSynchronize() {
  ENTER(call);
  machine().drain_all();
  return call.done(0);
}

EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return kInvalidDevice;
  *can = device != peer;
  return 0;
}

EXPORT int cuCtxEnablePeerAccess(Context* peer, unsigned) {
  ENTER(call);
  if (!peer || peer->device == call.device()) return kInvalidDevice;
  auto on = call.on().peers[peer->device];
  if (on) return kPeerAlreadyOn;
  call.on().peers[peer->device] = true;
  return call.done(0);
}

EXPORT int cuCtxDisablePeerAccess(Context* peer) {
  ENTER(call);
  if (!peer || !call.on().peers[peer->device]) return kPeerNotOn;
  call.on().peers[peer->device] = false;
  return call.done(0);
}

// The name's place in the text is its number's name, which is all that callers print.
EXPORT int cuGetErrorName(int code, const char** text) {
  static const std::map<int, const char*> names = {
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kUnknown, "CUDA_ERROR_UNKNOWN"},
  };
  const auto found = names.find(code);
  *text = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : 0;
}

EXPORT int cuGetErrorString(int code, const char** text) { return cuGetErrorName(code, text); }
