#include "fiber.h"

#include <stdint.h>
#include <sys/mman.h>

#include <new>

namespace emulator {

#ifndef __x86_64__
#error "the emulated driver switches fibers on x86-64 alone"
#endif

// The registers that a call keeps, and the stack pointer.
asm(R"(
.pushsection .text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulator_switch, .-emulator_switch
.popsection
)");

static constexpr size_t kPage = 4096;
static constexpr size_t kStack = 64 << 10;
static constexpr int kSaved = 6;

Stack::Stack() {
  void* p = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(p);
  mprotect(memory_, kPage, PROT_NONE);
}

Stack::~Stack() { munmap(memory_, kPage + kStack); }

void* Stack::start(void (*entry)()) const {
  // The entry's return address is 0, and its frame is aligned as after a call.
  void** top = reinterpret_cast<void**>(memory_ + kPage + kStack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSaved; i++) *--top = nullptr;
  return top;
}

}  // namespace emulator
