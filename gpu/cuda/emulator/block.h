// One block of a launch: its fibers and warps, and the order in which they run.
#pragma once
#include <memory>

#include "fiber.h"
#include "machine.h"

namespace emulator {

// Meeting is what the threads of a warp meet at.
enum class Meeting { kNone, kSync, kShuffle, kLoad, kLoadTransposed, kMultiply };

// Hand is what a thread brings to a meeting, and takes from it.
struct Hand {
  uint32_t value;
  int mask;
  uint32_t a[4], b[2], loaded[4];
  float d[4];
  bool half;
};

// Copy is one that has not landed yet.
struct Copy {
  uint32_t to;
  const void* from;
  int bytes, group;
};

struct Fiber : FiberPlace {
  enum State { kReady, kAtBarrier, kAtMeeting, kDone } state;
  Stack stack;
  void* at;
  int meeting;  // the number of the meeting that it waits for
  Hand hand;
  std::vector<Copy> copies;
  int groups;
};

struct Warp {
  Meeting kind = Meeting::kNone;
  int arrived = 0, size = 0, meetings = 0;
};

// Block runs blocks of launches, one after another, and keeps its stacks.
class Block {
 public:
  Block();
  ~Block();
  // run runs one block; the seed is its own.
  Failure run(const Launch& launch, const int (&at)[3], uint32_t seed);

  // What the operations of machine.h do for the fiber that runs.
  void barrier();
  Hand& meet(Meeting kind);
  void copy(uint32_t to, const void* from, int bytes);
  void commit();
  void wait(int pending);
  void fail(int code, const std::string& text);
  void check_shared(uint32_t address, const char* what);

 private:
  static void enter();
  void prepare(const Launch& launch, uint32_t seed);
  void schedule();
  bool run_warp(int w, bool greedy);
  bool open_barrier();
  void resume(Fiber* f);
  void yield();
  void hold_meeting(Warp* w, int warp);
  void load(int warp, bool transposed);
  void land(const Copy& c);
  uint32_t random();
  bool coin() { return seed_ != 0 && (random() & 1); }

  const Launch* launch_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  unsigned char* room_;
  int alive_ = 0, waiting_ = 0, threads_ = 0;
  uint32_t seed_ = 0, state_ = 0;
  void* scheduler_ = nullptr;
  Failure failure_;
};

}  // namespace emulator
