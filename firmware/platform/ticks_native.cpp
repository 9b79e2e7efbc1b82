#include <ctime>

#include "platform/board.h"
#include "platform/ticks.h"

namespace hil {

void ticks_init() {}

uint64_t ticks_begin() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t ticks_since(uint64_t begin) { return ticks_begin() - begin; }

uint32_t ticks_hz() { return board_clock_hz(); }

const char* ticks_source() { return "CLOCK_MONOTONIC"; }

}  // namespace hil
