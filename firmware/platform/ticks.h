// Counts ticks while a program executes.
#pragma once

#include <cstdint>

namespace hil {

void ticks_init();
uint64_t ticks_now();  // monotonic
uint32_t ticks_hz();
const char* ticks_source();

// Ticks from the end of the constructor to the call of ticks(), without those of the measuring
// itself. Exact where the ticks are instructions.
class TickSpan {
 public:
  TickSpan();
  uint64_t ticks() const;

 private:
  uint64_t begin_;
};

}  // namespace hil
