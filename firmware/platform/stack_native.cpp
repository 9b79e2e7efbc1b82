// The host does not measure its stack.
#include "platform/stack.h"

namespace hil {

StackUse stack_use() { return {}; }
void refill_stack() {}

}  // namespace hil
