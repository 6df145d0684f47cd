// Faults of kernels: touching memory that is not there ends the launch, as on a GPU, and not the
// process. Other faults go to whoever handled them before.
#pragma once
#include <setjmp.h>

namespace emulator {

extern thread_local sigjmp_buf* fault_exit;
extern thread_local const void* fault_address;

// install_fault_handler takes SIGSEGV and SIGBUS, once.
void install_fault_handler();

#define catch_fault(address) emulator::caught(address, sigsetjmp(emulator::fault_point(), 1))

// fault_point is this thread's place to come back to.
sigjmp_buf& fault_point();
bool caught(const void** address, int code);
void release_fault();

}  // namespace emulator
