#include "platform/board.h"

namespace hil {

void board_init() {}

uint32_t board_clock_hz() { return 20000000; }

}  // namespace hil
