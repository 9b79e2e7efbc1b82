// A monotonic 64-bit tick counter.
#pragma once

#include <cstdint>

namespace hil {

void ticks_init();
uint64_t ticks_now();
uint32_t ticks_hz();
const char* ticks_source();

}  // namespace hil
