// The stacks of the thread and of handlers: stack_cortex_m.cpp, and stack_native.cpp without any.
#pragma once

#include "target_library/hil_target.h"

namespace hil {

void grant_stacks(hil_target* target);

}  // namespace hil
