// Whole launches: blocks in any order, on all processors.
#include <signal.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "block.h"
#include "fault.h"

namespace emulator {

static std::vector<Kernel>& list() {
  static std::vector<Kernel> all;
  return all;
}

const std::vector<Kernel>& kernels() { return list(); }
void add_kernel(Kernel kernel) { list().push_back(std::move(kernel)); }

// Blocks that are not in use keep their stacks for the next launch.
static std::mutex idle_lock;
static std::vector<std::unique_ptr<Block>>& idle() {
  static auto* all = new std::vector<std::unique_ptr<Block>>;
  return *all;
}

static std::unique_ptr<Block> borrow() {
  std::lock_guard<std::mutex> lock(idle_lock);
  if (idle().empty()) return std::make_unique<Block>();
  auto b = std::move(idle().back());
  idle().pop_back();
  return b;
}

static void give_back(std::unique_ptr<Block> b) {
  std::lock_guard<std::mutex> lock(idle_lock);
  idle().push_back(std::move(b));
}

namespace {

// Grid is one launch as its workers share it.
struct Grid {
  explicit Grid(const Launch& l)
      : launch(l), blocks(static_cast<int64_t>(l.grid[0]) * l.grid[1] * l.grid[2]) {}

  const Launch& launch;
  const int64_t blocks;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex lock;
  Failure failure;
  Work done;

  // Odd seeds run the last block first.
  int64_t block(int64_t i) const { return launch.seed & 1 ? blocks - 1 - i : i; }

  void run() {
    auto block_of = borrow();
    work = Work{};
    for (int64_t i; !failed && (i = next++) < blocks;) {
      const int64_t b = block(i), x = launch.grid[0], y = launch.grid[1];
      const int at[3] = {static_cast<int>(b % x), static_cast<int>(b / x % y),
                         static_cast<int>(b / (x * y))};
      const uint32_t seed = launch.seed ? launch.seed + static_cast<uint32_t>(b) * 7919u + 1 : 0;
      const Failure f = block_of->run(launch, at, seed);
      if (f.code) {
        std::lock_guard<std::mutex> hold(lock);
        if (!failed) {
          failure = f;
          failure.text += ", block " + std::to_string(at[0]) + "," + std::to_string(at[1]);
        }
        failed = true;
      }
    }
    std::lock_guard<std::mutex> hold(lock);
    done.bytes += work.bytes;
    done.flops += work.flops;
    // A block that failed left its fibers where they were: its stacks are prepared anew anyway.
    give_back(std::move(block_of));
  }
};

// QuietSignals keeps the process's signals from the threads that are started while it lives.
class QuietSignals {
 public:
  QuietSignals() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &old_);
  }
  ~QuietSignals() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_;
};

}  // namespace

Failure run(const Launch& launch, Work* done) {
  install_fault_handler();
  Grid grid(launch);
  // Few blocks are not worth a thread.
  constexpr int64_t kBlocksForHelp = 8;
  std::vector<std::thread> helpers;
  if (grid.blocks >= kBlocksForHelp) {
    const QuietSignals quiet;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); i++) {
      helpers.emplace_back([&] { grid.run(); });
    }
  }
  grid.run();
  for (auto& h : helpers) h.join();
  done->bytes += grid.done.bytes;
  done->flops += grid.done.flops;
  return grid.failure;
}

}  // namespace emulator
