#include "block.h"

#include <string.h>
#include <sys/mman.h>

#include <new>

#include "fault.h"

namespace emulator {

thread_local FiberPlace* fiber;
thread_local Place place;
thread_local Work work;

// current is the block that runs on this thread.
static thread_local Block* current;

static constexpr size_t kPage = 4096;
static constexpr size_t kRoom = (kMaxShared + kPage - 1) / kPage * kPage;

Block::Block() {
  void* p = mmap(nullptr, kRoom + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  room_ = static_cast<unsigned char*>(p);
  mprotect(room_ + kRoom, kPage, PROT_NONE);
}

Block::~Block() { munmap(room_, kRoom + kPage); }

uint32_t Block::random() {
  state_ = state_ * 1664525u + 1013904223u;
  return state_ >> 8;
}

void Block::prepare(const Launch& launch, uint32_t seed) {
  launch_ = &launch;
  threads_ = launch.threads;
  seed_ = seed;
  state_ = seed * 2654435761u + 1;
  failure_ = Failure{};
  alive_ = threads_;
  waiting_ = 0;
  // Shared memory ends at a guard page, and holds NaNs.
  const int shared = (launch.shared + 127) / 128 * 128;
  place.shared = room_ + kRoom - shared;
  memset(place.shared, 0xff, shared);
  while (static_cast<int>(fibers_.size()) < threads_) {
    fibers_.push_back(std::make_unique<Fiber>());
  }
  warps_.assign((threads_ + kWarp - 1) / kWarp, Warp{});
  for (int i = 0; i < threads_; i++) {
    Fiber& f = *fibers_[i];
    f.thread = i;
    f.lane = i % kWarp;
    f.warp = i / kWarp;
    f.state = Fiber::kReady;
    f.at = f.stack.start(enter);
    f.copies.clear();
    f.groups = 0;
    warps_[f.warp].size++;
  }
}

Failure Block::run(const Launch& launch, const int (&at)[3], uint32_t seed) {
  for (int i = 0; i < 3; i++) {
    place.block[i] = at[i];
    place.grid[i] = launch.grid[i];
  }
  place.threads = launch.threads;
  current = this;
  prepare(launch, seed);
  // A fault of a fiber comes back here, as a failure of the launch.
  const void* address = nullptr;
  if (catch_fault(&address)) {
    char text[80];
    snprintf(text, sizeof text, "thread %d touched %p, which is not there", fiber->thread, address);
    failure_ = Failure{700, text};
  } else {
    schedule();
  }
  release_fault();
  current = nullptr;
  return failure_;
}

void Block::enter() {
  Block* b = current;
  b->launch_->kernel->call(b->launch_->kernel->function, b->launch_->params.data());
  static_cast<Fiber*>(fiber)->state = Fiber::kDone;
  b->alive_--;
  for (;;) b->yield();
}

void Block::yield() { emulator_switch(&static_cast<Fiber*>(fiber)->at, scheduler_); }

void Block::resume(Fiber* f) {
  fiber = f;
  emulator_switch(&scheduler_, f->at);
}

// schedule runs warps until all threads are done. Seed 0 gives each warp a turn after another; any
// other picks the order, and lets a warp run as far ahead of the others as barriers allow.
void Block::schedule() {
  const int count = static_cast<int>(warps_.size());
  while (alive_ > 0 && failure_.code == 0) {
    bool ran = false;
    const int first = seed_ ? random() % count : 0;
    const int step = seed_ && (random() & 1) ? count - 1 : 1;
    for (int i = 0; i < count && failure_.code == 0; i++) {
      ran = run_warp((first + i * step) % count, seed_ != 0) || ran;
    }
    ran = open_barrier() || ran;
    if (!ran && alive_ > 0 && failure_.code == 0) {
      failure_ = Failure{719,
                         "threads wait at a barrier or a collective that others never reach"};
    }
  }
}

bool Block::open_barrier() {
  if (alive_ == 0 || waiting_ != alive_) return false;
  waiting_ = 0;
  for (int i = 0; i < threads_; i++) {
    if (fibers_[i]->state == Fiber::kAtBarrier) fibers_[i]->state = Fiber::kReady;
  }
  return true;
}

// run_warp gives each thread of a warp a turn; greedy goes on until none can run.
bool Block::run_warp(int w, bool greedy) {
  const int size = warps_[w].size, low = w * kWarp;
  bool ran = false, again = true;
  while (again && failure_.code == 0) {
    again = false;
    const int first = seed_ ? random() % size : 0;
    for (int k = 0; k < size && failure_.code == 0; k++) {
      Fiber& f = *fibers_[low + (first + k) % size];
      if (f.state == Fiber::kAtMeeting && warps_[w].meetings != f.meeting) {
        f.state = Fiber::kReady;
      }
      if (f.state != Fiber::kReady) continue;
      ran = true;
      again = greedy;
      resume(&f);
    }
  }
  return ran;
}

void Block::fail(int code, const std::string& text) {
  failure_ = Failure{code, text};
  for (;;) yield();
}

void Block::barrier() {
  static_cast<Fiber*>(fiber)->state = Fiber::kAtBarrier;
  waiting_++;
  yield();
}

Block* running() { return current; }

void sync_block() { current->barrier(); }

uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - place.shared);
}

void Block::check_shared(uint32_t address, const char* what) {
  if (static_cast<int64_t>(address) + 16 > launch_->shared || address % 16 != 0) {
    fail(716, std::string(what) + ": shared address " + std::to_string(address) +
                  " is out of range or not aligned to 16");
  }
}

void Block::land(const Copy& c) {
  memset(place.shared + c.to, 0, 16);
  memcpy(place.shared + c.to, c.from, c.bytes);
}

void Block::copy(uint32_t to, const void* from, int bytes) {
  check_shared(to, "copy_async");
  if (bytes > 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    fail(716, "copy_async: global address is not aligned to 16");
  }
  Fiber& f = *static_cast<Fiber*>(fiber);
  const Copy c{to, from, bytes, f.groups};
  if (coin()) {
    land(c);
  } else {
    f.copies.push_back(c);
  }
}

void Block::commit() { static_cast<Fiber*>(fiber)->groups++; }

// wait lands all groups but the last `pending`.
void Block::wait(int pending) {
  Fiber& f = *static_cast<Fiber*>(fiber);
  size_t kept = 0;
  for (const Copy& c : f.copies) {
    if (c.group < f.groups - pending) {
      land(c);
    } else {
      f.copies[kept++] = c;
    }
  }
  f.copies.resize(kept);
}

void copy_async(uint32_t shared, const void* global, int bytes) {
  traffic(bytes);
  current->copy(shared, global, bytes);
}
void copy_commit() { current->commit(); }
void copy_wait(int pending) { current->wait(pending); }

}  // namespace emulator
