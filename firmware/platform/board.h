// What a board folder's board.cpp defines. See boards/README.md.
#pragma once

#include <cstdint>

namespace hil {

// Called once, after .data and .bss are in place and before the console is opened.
void board_init();

// Of the processor clock, which SysTick counts. Called after board_init().
uint32_t board_clock_hz();

}  // namespace hil
