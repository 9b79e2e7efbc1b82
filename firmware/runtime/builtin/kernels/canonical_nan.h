// The canonical NaN, on every target: x86 makes NaNs with the sign set, Arm without, and cores
// differ in which operand's NaN they pass on.
#pragma once

#include <limits>

namespace hil::builtin {

inline float canonical_nan(float value) {
  return value == value ? value : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace hil::builtin
