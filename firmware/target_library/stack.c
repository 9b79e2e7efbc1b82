#include "target_library/stack.h"

#include "target_library/link.h"

#if defined(__arm__)

static const uint32_t pattern = 0xA5A5A5A5;
static const uint32_t largest_frame =
    27 * 4;  // bytes that an interrupt pushes, with one word of alignment

static uint32_t* word_at(uintptr_t address) { return (uint32_t*)((address + 3) & ~(uintptr_t)3); }

static uint32_t* lowest(void) {
  return word_at((uintptr_t)hil_target_used->stack.data - hil_target_used->stack_guard);
}

static void fill(uint32_t* from, const uint32_t* to) {
  for (volatile uint32_t* p = from; p < to; ++p) *p = pattern;  // never a call of memset()
}

// Out of line, so that its own frame, the lowest in use, is above the stack pointer that it reads.
__attribute__((noinline)) void hil_fill_stack(bool with_guard) {
  const hil_memory stack = hil_target_used->stack;
  if (stack.size == 0) return;
  uintptr_t stack_pointer;
  __asm volatile("mov %0, sp" : "=r"(stack_pointer));
  uint32_t* from = with_guard ? lowest() : word_at((uintptr_t)stack.data);
  const uintptr_t top = (uintptr_t)stack.data + stack.size;
  if (stack_pointer > top) return;  // another stack
  fill(from, word_at(stack_pointer - largest_frame));
}

size_t hil_stack_used(void) {
  const hil_memory stack = hil_target_used->stack;
  if (stack.size == 0) return 0;
  const uint32_t* top = word_at((uintptr_t)stack.data + stack.size - 3);
  const uint32_t* mark = lowest();
  while (mark < top && *mark == pattern) ++mark;
  return (size_t)((const uint8_t*)top - (const uint8_t*)mark);
}

#else  // elsewhere it is not measured

void hil_fill_stack(bool with_guard) { (void)with_guard; }

size_t hil_stack_used(void) { return 0; }

#endif
