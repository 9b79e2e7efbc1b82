// The protocol's memory spaces: (space, index) to bytes.
#pragma once

#include <cstdint>

#include "platform/protocol.h"
#include "runner/wire.h"
#include "runtime/runtime.h"

namespace hil {

// `bytes` may be written only if `writable`.
struct Region {
  Span<uint8_t> bytes;
  bool writable = false;
};

// Each returns false after putting the reason into `reply`.
bool find_value(uint8_t space, uint32_t index, ValueView* view, Reply& reply);
bool find_region(uint8_t space, uint32_t index, Region* region, Reply& reply);
// Cuts a region down to `length` bytes at `offset`; `length` kToTheEnd means what it says.
bool cut_region(Region* region, uint32_t offset, uint32_t length, Reply& reply);

}  // namespace hil
