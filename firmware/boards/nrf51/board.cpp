// Timers: Nordic's nRF51 Series Reference Manual. TIMER1 has 32 bits in QEMU only.
#include "platform/board.h"

#include "platform/arch.h"

namespace {

using hil::arch::reg;

constexpr uintptr_t kTimer = 0x40008000;
constexpr uintptr_t kSlowTimer = 0x40009000;
constexpr uintptr_t kStart = 0x000;
constexpr uintptr_t kCapture = 0x040;
constexpr uintptr_t kBitMode = 0x508;
constexpr uintptr_t kPrescaler = 0x510;  // the exponent
constexpr uintptr_t kCaptured = 0x540;
constexpr uint32_t kBits32 = 3;
constexpr uint32_t kEvery256th = 8;
constexpr uint32_t kClockHz = 16000000;

void start(uintptr_t timer, uint32_t prescaler) {
  reg(timer + kBitMode) = kBits32;
  reg(timer + kPrescaler) = prescaler;
  reg(timer + kStart) = 1;
}

uint32_t ticks(uintptr_t timer) {
  reg(timer + kCapture) = 1;
  return reg(timer + kCaptured);
}

}  // namespace

namespace hil {

void board_init() {
  start(kTimer, 0);
  start(kSlowTimer, kEvery256th);
}

uint32_t board_clock_hz() { return kClockHz; }

uint32_t board_timer_hz() { return kClockHz; }

uint32_t board_timer() { return ticks(kTimer); }

uint32_t board_timer_slow() { return ticks(kSlowTimer); }

}  // namespace hil
