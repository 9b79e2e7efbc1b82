// The byte channel to the host. One implementation is linked, by the board's `console:`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/protocol.h"

namespace hil {

void console_open();

// Blocks until at least one byte is there. 0 means end of file.
size_t console_read(uint8_t* buffer, size_t size);

// false: the host is gone.
bool console_write(const uint8_t* data, size_t size);

// Ends the process; without semihosting, waits for a reset.
[[noreturn]] void system_exit(int status);

}  // namespace hil
