#include "platform/mpu.h"
#include "platform/stack.h"

extern "C" {
extern uint8_t __stack_guard[];
extern uint8_t __stack_bottom[];
extern uint8_t __stack_top[];
extern uint8_t __handler_stack_bottom[];
extern uint8_t __handler_stack_top[];
}

namespace hil {

// Where nothing guards the page below the stack, an overflow is detected there.
void grant_stacks(hil_target* target) {
  target->stack = {__stack_bottom, static_cast<size_t>(__stack_top - __stack_bottom)};
  target->stack_guard =
      stack_is_guarded() ? 0 : static_cast<size_t>(__stack_bottom - __stack_guard);
  target->handler_stack = {__handler_stack_bottom,
                           static_cast<size_t>(__handler_stack_top - __handler_stack_bottom)};
}

}  // namespace hil
