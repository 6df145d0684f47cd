// What the emulated driver remembers: devices, memory, streams of work that is not done, events,
// modules and graphs. One lock guards all of it, and work runs under that lock, on the thread that
// waits for it: nothing runs when it is given, so that a program which forgets to wait sees it.
#pragma once
#include <stdint.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "machine.h"

namespace emulator {

// Codes of the driver.
enum Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kPeerAlreadyOn = 704,
  kPeerNotOn = 705,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kUnknown = 999,
};

// Engines do one thing at a time.
enum Engine { kCompute, kIn, kOut, kLink, kEngines, kNoEngine = kEngines };

// Rates of an H200, as reference measurements on one have them, in seconds and bytes.
constexpr double kFlopsPerSecond = 790e12, kMemoryRate = 4.3e12, kHostRate = 55e9,
                 kLinkRate = 380e9, kLaunchSeconds = 2e-6, kGraphLaunchSeconds = 5e-7,
                 kCopySeconds = 1e-6;

// Mark is one recording of an event, or the wait for it.
struct Mark {
  uint64_t wanted = 0, done = 0;
  double time = 0;
};

// Op is work in a stream.
struct Op {
  std::string what;
  Engine engine = kNoEngine;
  double seconds = 0;  // what it takes beside its work
  std::function<Failure(Work*)> run;
  std::shared_ptr<Mark> wait, record;
  uint64_t generation = 0;
};

struct Graph {
  std::vector<Op> ops;
};

struct Stream;

// Capture is a graph that is being made.
struct Capture {
  Graph* graph;
  Stream* origin;
  bool broken = false;
  std::map<Stream*, size_t> last, joined;  // places in the graph
};

struct Stream {
  int device = 0, priority = 0;
  unsigned flags = 0;
  double time = 0;
  std::deque<Op> queue;
  std::shared_ptr<Capture> capture;
};

struct Event {
  unsigned flags = 0;
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
  std::shared_ptr<Capture> capture;  // of its last recording, with the stream and the place
  Stream* stream = nullptr;
  size_t place = 0;
};

struct Allocation {
  uintptr_t start;
  size_t size;
  int device;
  char* map;  // with a guard page at both ends
  size_t mapped;
  int file;      // -1: not shared
  bool foreign;  // another process's
};

struct Function {
  const Kernel* kernel;
  std::string name;
  std::string params;  // as the PTX has them
  int most_shared = kSharedWithoutAsking;
};

struct Module {
  std::map<std::string, Function> functions;
};

struct Context {
  int device;
  int users = 0;
};

struct Device {
  Context primary;
  size_t used = 0;
  int lost = 0;  // the code that every call now gives
  double free[kEngines] = {};
  std::vector<bool> peers;
};

// Fault is a planted failure: it happens at the call so many calls from now; 0 is never.
struct Faults {
  bool known = true;  // that is: what the environment asks for is one of these
  int64_t allocation = 0, launch = 0, lost = 0;
};

struct Machine {
  std::mutex lock;
  uint32_t seed = 0, random_state = 0;
  size_t memory = 0;
  int capability = 90;
  int shared = kMaxShared;  // of a block, in bytes
  std::vector<Device> devices;
  std::map<uintptr_t, Allocation> allocations;
  std::map<uintptr_t, size_t> pinned, registered;
  std::vector<Stream*> streams;
  Stream defaults[8];
  double now = 0;
  int64_t launches = 0;
  Faults faults;
  std::string log;  // the last failure, in words

  Machine();
  uint32_t random();

  // Memory. All sizes in bytes.
  int allocate(int device, size_t size, uintptr_t* at);
  int release(uintptr_t at);
  const Allocation* find(uintptr_t at, size_t size) const;
  bool is_pinned(uintptr_t at, size_t size) const;
  int share(Allocation* a);

  // Streams.
  int put(Stream* s, Op op);
  bool step();
  void drain(Stream* s);
  void drain_all();
  void perhaps_step();

  int fail(int device, const Failure& f);

 private:
  bool runnable(const Stream* s) const;
  void perform(Stream* s, Op op);
};

Machine& machine();

// current is the context of the calling thread.
Context*& current();

// Call is a driver call on the current context: it holds the lock, and has the context's error.
class Call {
 public:
  Call() : hold_(machine().lock) {
    code = current() ? machine().devices[current()->device].lost : kInvalidContext;
  }
  int device() const { return current()->device; }
  Device& on() const { return machine().devices[device()]; }
  // done is what the call answers after work that may have failed.
  int done(int result) const { return on().lost ? on().lost : result; }
  int code;

 private:
  std::lock_guard<std::mutex> hold_;
};

// or_default gives the stream that a handle means; 0 to 2 are the default one.
Stream* or_default(void* handle, int device);

// strike says whether a planted failure happens now.
bool strike(int64_t* countdown);

}  // namespace emulator

#define EXPORT extern "C" __attribute__((visibility("default")))
#define ENTER(call)   \
  emulator::Call call; \
  if (call.code) return call.code
