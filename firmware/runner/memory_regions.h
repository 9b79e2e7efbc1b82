// The protocol's memory spaces: (region, index) to bytes.
#pragma once

#include <cstdint>

#include "platform/protocol.h"
#include "runner/wire.h"
#include "runtime/runtime.h"

namespace hil {

// `bytes` may be written only if `writable`.
struct Memory {
  Span<uint8_t> bytes;
  bool writable = false;
};

// Each returns false after putting the reason into `reply`.
bool find_value(uint8_t region, uint32_t index, ValueView* view, Reply& reply);
bool find_memory(uint8_t region, uint32_t index, Memory* memory, Reply& reply);
// Cuts a memory down to `length` bytes at `offset`, or to all from there if `length` is kToTheEnd.
bool cut_memory(Memory* memory, uint32_t offset, uint32_t length, Reply& reply);

}  // namespace hil
