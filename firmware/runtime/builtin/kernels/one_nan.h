// One NaN for all targets: x86 makes them with the sign set, Arm without, and cores differ in which
// operand's they pass on.
#pragma once

#include <limits>

namespace hil::builtin {

inline float one_nan(float value) {
  return value == value ? value : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace hil::builtin
