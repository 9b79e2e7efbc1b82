// Events that the runner sends without a request. One-shot mode prints text for people instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/protocol.h"

namespace hil {

void use_plain_text();

void send_ready();
void send_progress(uint32_t instruction);
void send_log(LogLevel level, const char* text);

// Writes a frame to the console in one piece; ends the process if the host is gone.
void send_encoded(const uint8_t* frame, size_t size);

}  // namespace hil
