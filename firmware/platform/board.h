// The functions that a board folder's board.cpp defines (boards/README.md).
#pragma once

#include <cstdint>

namespace hil {

// Called once, after .data and .bss are in place and before the console is opened.
void board_init();

// The frequency of the processor clock, which SysTick counts. Called after board_init().
uint32_t board_clock_hz();

// A timer that counts up and interrupts nobody; board_init() starts it. By it the runner counts
// instructions, where they all take the same time. Optional: board_timer_hz() is 0 without one.
uint32_t board_timer_hz();
uint32_t board_timer();       // 32 bits; takes the same instructions each time
uint32_t board_timer_slow();  // every 256th of its ticks, so that it wraps 256 times later

}  // namespace hil
