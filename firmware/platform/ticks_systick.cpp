#include "platform/arch.h"
#include "platform/board.h"
#include "platform/ticks.h"

namespace {

constexpr uint32_t kReload = 0xFFFFFF;  // SysTick counts 24 bits, downwards

volatile uint32_t overflows = 0;

}  // namespace

extern "C" void SysTick_Handler() { overflows = overflows + 1; }

namespace hil {

void ticks_init() {
  arch::reg(arch::kSysTickLoad) = kReload;
  arch::reg(arch::kSysTickVal) = 0;
  arch::reg(arch::kSysTickCtrl) = arch::kSysTickEnable;
}

uint64_t ticks_now() {
  uint32_t high;
  uint32_t value;
  bool pending;
  do {
    high = overflows;
    value = arch::reg(arch::kSysTickVal);
    pending = (arch::reg(arch::kIcsr) & arch::kIcsrPendStSet) != 0;
  } while (high != overflows);
  // Wrapped, and the interrupt has not been taken yet.
  if (pending && value > kReload / 2) ++high;
  return (static_cast<uint64_t>(high) << 24) + (kReload - value);
}

uint32_t ticks_hz() { return board_clock_hz(); }

const char* ticks_source() { return "SysTick"; }

}  // namespace hil
