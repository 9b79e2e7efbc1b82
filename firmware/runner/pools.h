// The three pools of memory, sized by the build.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"

namespace hil {

Span<uint8_t> program_pool();
Span<uint8_t> planned_pool();
Span<uint8_t> method_pool();

}  // namespace hil
