// The byte channel to the host. One implementation is linked, by the board's `console:`.
#pragma once

#include "target_library/hil_target.h"

namespace hil {

// Sets how bytes come and go, and how the firmware ends.
void link_console(hil_target* target);

// Ends the process; without semihosting, waits for a reset.
[[noreturn]] void system_exit(int status);

}  // namespace hil
