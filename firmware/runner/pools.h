// The pools of memory, sized by the build.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"

namespace hil {

Span<uint8_t> program_pool();
// The memory for planned buffers beside a program that takes the first `program` bytes of its pool:
// on boards with little RAM the first bank shares that memory.
Span<const Bank> banks(size_t program = 0);
Span<uint8_t> method_pool();
// For what kernels take and give back. Empty: they take it from the method pool.
Span<uint8_t> temp_pool();
// Flash beside the runner, which only a flash tool writes. Empty where there is none.
Span<const uint8_t> resident_area();

}  // namespace hil
