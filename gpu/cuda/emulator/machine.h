// The emulated processor: what the kernels' dialect calls (kernels/src/simt_cpu.h). One block runs
// on one thread of the machine, each of its threads as a fiber; warps go in step only where they
// meet at a collective operation, and what a block's threads write is seen by the others in an
// order that the seed picks.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace emulator {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;           // of a block
constexpr int kMaxShared = 227 << 10;       // bytes of shared memory of a block
constexpr int kSharedWithoutAsking = 48 << 10;

// Fiber is one thread of the block that runs.
struct Fiber;
struct FiberPlace {
  int thread, lane, warp;
};
extern thread_local FiberPlace* fiber;

// Place says where the block that runs is.
struct Place {
  int block[3], grid[3], threads;
  unsigned char* shared;
};
extern thread_local Place place;

// Collective operations. A thread that calls one waits until its whole warp, or block, has.
void sync_block();
void sync_warp();
uint32_t shuffle_xor(uint32_t v, int mask);
void load_matrix(uint32_t* r, uint32_t shared, bool transposed);
void multiply(float* d, const uint32_t* a, const uint32_t* b, bool half);

// Copies past the registers. They land at any time between the call and the wait.
uint32_t shared_address(const void* p);
void copy_async(uint32_t shared, const void* global, int bytes);
void copy_commit();
void copy_wait(int pending);

// Work counts what a launch did, for the clock.
struct Work {
  int64_t bytes = 0, flops = 0;
};
extern thread_local Work work;
inline void traffic(int64_t bytes) { work.bytes += bytes; }

// Kernel is a kernel as the emulator runs it. params has a letter for each parameter: p a pointer,
// i an integer and f a float.
struct Kernel {
  std::string name, params;
  int max_threads;
  void (*call)(void (*function)(), void* const* params);
  void (*function)();
};

// kernels are those that this library was built with.
const std::vector<Kernel>& kernels();
void add_kernel(Kernel kernel);

template <class T>
constexpr char letter(T*) {
  return 'p';
}
constexpr char letter(int) { return 'i'; }
constexpr char letter(float) { return 'f'; }

template <class... A, size_t... I>
void call_with(void (*f)(), void* const* params, void (*)(A...), std::index_sequence<I...>) {
  reinterpret_cast<void (*)(A...)>(f)(*static_cast<A*>(params[I])...);
}

// Entry enters a kernel in the list when the library is loaded.
struct Entry {
  template <class... A>
  Entry(const char* name, int max_threads, void (*f)(A...)) {
    add_kernel(Kernel{name, std::string{letter(A{})...}, max_threads,
                      [](void (*g)(), void* const* params) {
                        call_with(g, params, static_cast<void (*)(A...)>(nullptr),
                                  std::index_sequence_for<A...>{});
                      },
                      reinterpret_cast<void (*)()>(f)});
  }
};

// Launch is a grid to run.
struct Launch {
  const Kernel* kernel;
  int grid[3], threads;
  int shared;  // bytes
  std::vector<void*> params;
  uint32_t seed;  // 0: threads in order, copies land at the wait
};

// Failure of a launch: a code of the driver and words for the log; code 0 is success.
struct Failure {
  int code = 0;
  std::string text;
};

// run runs a grid to its end, or to the first failure of a block, and adds to done.
Failure run(const Launch& launch, Work* done);

}  // namespace emulator
