// Fibers: stacks that one thread of the machine switches between.
#pragma once
#include <stddef.h>

namespace emulator {

// Stack is memory for a fiber with a guard page below.
class Stack {
 public:
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  // start prepares the stack so that the first switch to it calls entry, which must not return.
  void* start(void (*entry)()) const;

 private:
  char* memory_;
};

// emulator_switch saves where the caller is in *save and goes on at `to`.
extern "C" void emulator_switch(void** save, void* to);

}  // namespace emulator
