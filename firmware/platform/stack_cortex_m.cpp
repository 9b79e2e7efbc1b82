// The thread's stack is filled with a pattern; what a program used of it no longer has the pattern.
#include <cstdint>

#include "platform/mpu.h"
#include "platform/stack.h"

extern "C" {
extern uint32_t __stack_guard[];
extern uint32_t __stack_bottom[];
extern uint32_t __stack_top[];
}

namespace {

constexpr uint32_t kStackFill = 0xA5A5A5A5;
constexpr int kLargestFrame = 27;  // words that an interrupt pushes, with one of alignment

// The lowest word that is filled before the program runs. Where nothing guards the page below the
// stack, that page is filled as well, to detect an overflow.
uint32_t* lowest_of_stack() { return hil::stack_is_guarded() ? __stack_bottom : __stack_guard; }

void fill(uint32_t* from, const uint32_t* to) {
  for (volatile uint32_t* p = from; p < to; ++p) *p = kStackFill;  // never a call of memset()
}

}  // namespace

namespace hil {

void fill_stack() { fill(lowest_of_stack(), __stack_top); }

StackUse stack_use() {
  const uint32_t* lowest = lowest_of_stack();
  while (lowest != __stack_top && *lowest == kStackFill) ++lowest;
  const auto bytes = [](const uint32_t* from, const uint32_t* to) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) -
                                 reinterpret_cast<uintptr_t>(from));
  };
  return {bytes(lowest, __stack_top), bytes(__stack_bottom, __stack_top)};
}

// Out of line, so that its own frame, the lowest in use, is above the stack pointer that it reads.
// The page below the stack is left alone: what is written there was an overflow.
[[gnu::noinline]] void refill_stack() {
  uint32_t* stack_pointer;
  asm volatile("mov %0, sp" : "=r"(stack_pointer));
  fill(__stack_bottom, stack_pointer - kLargestFrame);
}

}  // namespace hil
