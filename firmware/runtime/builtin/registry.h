// The operators this runtime has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/runtime.h"

namespace hil::builtin {

class KernelContext;

struct Operator {
  const char* name;  // namespace::name.overload
  void (*kernel)(KernelContext&);
};

// The least and the most arguments of a call, out included.
struct Arity {
  uint32_t least;
  uint32_t most;
};

// The arity of the operator, by the arguments that its kernel reads.
Arity arity_of(const Operator& op);

Span<const Operator> operators();

// nullptr if there is none. `overload` may be empty.
const Operator* find_operator(const char* name, const char* overload);

}  // namespace hil::builtin
