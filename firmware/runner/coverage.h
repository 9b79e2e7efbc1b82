// The counts of lines and branches that kernels have executed, in gcov's format
// (HIL_COUNT_KERNELS).
#pragma once

#include "runner/wire.h"
#include "runtime/runtime.h"

namespace hil {

// Writes it into the program pool, and forgets the program: for each object file the name of its
// .gcda file (str), and its bytes (u32 and so many). false after putting the reason into `reply`.
bool take_coverage(Reply& reply);
// The counts that were written last; empty before that.
Span<uint8_t> coverage();

}  // namespace hil
