// The processor's clock: counted by the DWT where there is one and it counts (ARMv6-M has none,
// QEMU's stands still), else by SysTick.
#include "platform/arch.h"
#include "platform/board.h"
#include "platform/ticks.h"

namespace {

using namespace hil::arch;

constexpr uint32_t kReload = 0xFFFFFF;  // SysTick counts 24 bits, downwards

volatile uint32_t overflows = 0;

uint64_t systick_now() {
  uint32_t high;
  uint32_t value;
  bool pending;
  do {
    high = overflows;
    value = reg(kSysTickVal);
    pending = (reg(kIcsr) & kIcsrPendStSet) != 0;
  } while (high != overflows);
  // Wrapped, and the interrupt has not been taken yet.
  if (pending && value > kReload / 2) ++high;
  return (static_cast<uint64_t>(high) << 24) + (kReload - value);
}

#if HIL_MAINLINE

bool counts = false;
uint32_t last = 0;
uint32_t wraps = 0;

void start_dwt() {
  reg(kDemcr) = reg(kDemcr) | kDemcrTrcEna;
  reg(kDwtCtrl) = reg(kDwtCtrl) | kDwtCtrlCycCntEna;
  const uint32_t first = reg(kDwtCycCnt);
  asm volatile("nop\nnop\nnop\nnop");
  counts = reg(kDwtCycCnt) != first;
}

// 32 bits wrap after seconds; SysTick's interrupt looks often enough to see each.
uint64_t dwt_now() {
  const uint32_t masked = mask_interrupts();
  const uint32_t now = reg(kDwtCycCnt);
  if (now < last) ++wraps;
  last = now;
  const uint64_t ticks = static_cast<uint64_t>(wraps) << 32 | now;
  restore_interrupts(masked);
  return ticks;
}

#else

constexpr bool counts = false;

void start_dwt() {}
uint64_t dwt_now() { return 0; }

#endif

}  // namespace

extern "C" void SysTick_Handler() {
  overflows = overflows + 1;
  if (counts) dwt_now();
}

namespace hil {

void ticks_init() {
  start_dwt();
  reg(kSysTickLoad) = kReload;
  reg(kSysTickVal) = 0;
  reg(kSysTickCtrl) = kSysTickEnable;
}

uint64_t ticks_now() { return counts ? dwt_now() : systick_now(); }

uint32_t ticks_hz() { return board_clock_hz(); }

const char* ticks_source() { return counts ? "DWT" : "SysTick"; }

}  // namespace hil
