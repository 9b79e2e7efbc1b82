// The counts of lines and branches that kernels have executed, in gcov's format
// (HIL_COUNT_KERNELS).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hil {

// The function of hil_target; nullptr in a runner that does not count. For each object file it
// writes the name of its .gcda file (str), the size of that file (u32) and its bytes.
size_t (*coverage())(uint8_t* room, size_t size);

}  // namespace hil
