// How much of the thread stack has been used since it was last filled, by its fill pattern:
// stack_cortex_m.cpp, and stack_native.cpp without a measurement.
#pragma once

#include <cstdint>

namespace hil {

struct StackUse {
  uint32_t used = 0;  // bytes; above `size` after an overflow that nothing caught
  uint32_t size = 0;  // bytes; 0 where it is not measured
};

// Fills all of it before thread mode uses it. On Cortex-M only.
void fill_stack();
StackUse stack_use();
// Fills the free part, in thread mode. An earlier overflow stays visible to stack_use().
void refill_stack();

}  // namespace hil
