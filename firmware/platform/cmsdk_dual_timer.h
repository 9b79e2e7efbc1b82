// The dual timer of Arm's CMSDK (DDI 0479): two timers of 32 bits on one clock, which count down.
#pragma once

#include "platform/arch.h"

namespace hil::cmsdk {

template <uintptr_t kBase>
struct DualTimer {
  static constexpr uintptr_t kValue1 = kBase + 0x04;
  static constexpr uintptr_t kControl1 = kBase + 0x08;
  static constexpr uintptr_t kValue2 = kBase + 0x24;
  static constexpr uintptr_t kControl2 = kBase + 0x28;
  static constexpr uint32_t kOn =
      1u << 7 | 1u << 1;  // enabled, 32 bits; free-running, no interrupt
  static constexpr uint32_t kEvery256th = 2u << 2;

  static void start() {
    arch::reg(kControl1) = kOn;
    arch::reg(kControl2) = kOn | kEvery256th;
  }
  static uint32_t ticks() { return ~arch::reg(kValue1); }
  static uint32_t slow_ticks() { return ~arch::reg(kValue2); }
};

}  // namespace hil::cmsdk
