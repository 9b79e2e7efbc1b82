// The operators this runtime has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/runtime.h"

namespace hil::builtin {

class KernelContext;

struct Operator {
  const char* name;   // namespace::name.overload
  uint8_t arguments;  // of the schema, out included
  void (*kernel)(KernelContext&);
  uint8_t newer = 0;  // that many of them executorch 1.4.1 does not have
};

Span<const Operator> operators();

// nullptr if there is none. `overload` may be empty.
const Operator* find_operator(const char* name, const char* overload);

}  // namespace hil::builtin
