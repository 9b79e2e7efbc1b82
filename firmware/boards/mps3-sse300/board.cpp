// The system counter and its timers: Arm's SSE-300 TRM (101773).
#include "platform/board.h"

#include "platform/arch.h"

namespace {

using hil::arch::reg;

constexpr uintptr_t kCounterControl = 0x58100000;  // CNTCR
constexpr uintptr_t kCountLow = 0x58000000;        // of timer 0, which reads the system counter
constexpr uintptr_t kCountHigh = 0x58000004;
constexpr uint32_t kClockHz = 32000000;

}  // namespace

namespace hil {

void board_init() { reg(kCounterControl) = 1; }

uint32_t board_clock_hz() { return kClockHz; }

uint32_t board_timer_hz() { return kClockHz; }

uint32_t board_timer() { return reg(kCountLow); }

uint32_t board_timer_slow() {
  uint32_t high;
  uint32_t low;
  do {
    high = reg(kCountHigh);
    low = reg(kCountLow);
  } while (high != reg(kCountHigh));
  return high << 24 | low >> 8;
}

}  // namespace hil
