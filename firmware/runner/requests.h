// One function per request of docs/protocol.md.
#pragma once

#include <cstdint>

#include "runner/wire.h"

namespace hil {

void handle_request(uint8_t type, uint16_t seq, Reader request, Reply& reply);

}  // namespace hil
