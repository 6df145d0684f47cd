#include "fault.h"

#include <signal.h>

#include <mutex>

namespace emulator {

thread_local sigjmp_buf* fault_exit;
thread_local const void* fault_address;
static thread_local sigjmp_buf point;

static struct sigaction old_segv, old_bus;

static void handle(int signal, siginfo_t* info, void* context) {
  if (fault_exit) {
    fault_address = info->si_addr;
    siglongjmp(*fault_exit, 1);
  }
  const struct sigaction& old = signal == SIGBUS ? old_bus : old_segv;
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(signal, info, context);
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(signal);
  } else {
    sigaction(signal, &old, nullptr);  // the fault comes again, and ends the process
  }
}

void install_fault_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &old_segv);
    sigaction(SIGBUS, &action, &old_bus);
  });
}

sigjmp_buf& fault_point() { return point; }

bool caught(const void** address, int code) {
  if (code == 0) {
    fault_exit = &point;
    return false;
  }
  *address = fault_address;
  return true;
}

void release_fault() { fault_exit = nullptr; }

}  // namespace emulator
