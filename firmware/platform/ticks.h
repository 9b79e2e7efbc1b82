// Counts ticks while a program executes.
#pragma once

#include <cstdint>

namespace hil {

void ticks_init();
uint64_t ticks_begin();  // of the clock, for ticks_since()
uint64_t ticks_since(uint64_t begin);
uint32_t ticks_hz();
const char* ticks_source();

}  // namespace hil
