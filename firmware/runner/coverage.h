// What the kernels of a build with HIL_COUNT_KERNELS have executed, as gcov counts it.
#pragma once

#include "runner/wire.h"
#include "runtime/runtime.h"

namespace hil {

// Writes it into the program pool, and forgets the program: for each object file the name of its
// .gcda file (str), and its bytes (u32 and so many). false after putting the reason into `reply`.
bool take_coverage(Reply& reply);
// What was written last; empty before.
Span<uint8_t> coverage();

}  // namespace hil
