#include "platform/board.h"

namespace hil {

// Clocks and memories that are off after a reset are switched on here. QEMU has none.
void board_init() {}

uint32_t board_clock_hz() { return 25000000; }

}  // namespace hil
