// The counts of lines and branches that kernels have executed, in gcov's format
// (HIL_COUNT_KERNELS).
#pragma once

#include "runner/wire.h"
#include "runtime/runtime.h"

namespace hil {

// Writes the counts into the program pool, and forgets the program: for each object file the name
// of its .gcda file (str), the size of that file (u32) and its bytes. Returns false after putting
// the reason into `reply`.
bool take_coverage(Reply& reply);
// The counts that were written last; empty if none were written.
Span<uint8_t> coverage();

}  // namespace hil
