// Reports a Failure: its code and message.
#pragma once

#include "runtime/runtime.h"
#include "runtime/text.h"

namespace hil {

void clear(Failure* failure);

// Returns false, so that a check can end with `return report(...)`.
template <typename... Parts>
bool report(Failure* failure, hil_status code, const Parts&... parts) {
  clear(failure);
  failure->code = code;
  Text(failure->message).add(parts...);
  return false;
}

template <typename... Parts>
bool reject(Failure* failure, const Parts&... parts) {
  return report(failure, HIL_STATUS_PROGRAM_REJECTED, parts...);
}

// `region` is where the pool lies, where that tells it from others of its kind.
bool out_of_memory(Failure* failure, const char* pool, uint64_t requested, uint64_t available,
                   const char* region = nullptr);

}  // namespace hil
