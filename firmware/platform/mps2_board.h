// An MPS2's clock and timer: the board.cpp of a folder with a memory map of its own includes this.
// A board with another timer or clock defines HIL_MPS2_OWN_CLOCK, kTimer and kClockHz before.
#pragma once

#include "platform/board.h"
#include "platform/cmsdk_dual_timer.h"

namespace {

#ifndef HIL_MPS2_OWN_CLOCK
constexpr uintptr_t kTimer = 0x40002000;
constexpr uint32_t kClockHz = 25000000;
#endif
using Timer = hil::cmsdk::DualTimer<kTimer>;

}  // namespace

namespace hil {

void board_init() { Timer::start(); }

uint32_t board_clock_hz() { return kClockHz; }

uint32_t board_timer_hz() { return kClockHz; }

uint32_t board_timer() { return Timer::ticks(); }

uint32_t board_timer_slow() { return Timer::slow_ticks(); }

}  // namespace hil
