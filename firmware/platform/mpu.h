#pragma once

namespace hil {

// Makes stack overflows and writes through null pointers fault, where there is an MPU.
void protect_memory();
// Whether an overflow of the thread's stack faults where it leaves the stack.
bool stack_is_guarded();

}  // namespace hil
