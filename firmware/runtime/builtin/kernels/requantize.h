// CMSIS-NN's fixed-point scaling (arm_nnsupportfunctions.h, double rounding), bit for bit.
//
// A real factor is `multiplier` / 2^31 * 2^`shift`. Sums and left shifts wrap as they do on the
// target; they are done unsigned, where C++ says so too.
#pragma once

#include <cstdint>

#include "runtime/builtin/kernels/vector.h"

namespace hil::builtin {

constexpr int32_t kMaxRightShift = 31;
constexpr int32_t kMaxLeftShift = 30;

// round(a * b / 2^31), ties upwards. Only INT32_MIN * INT32_MIN leaves int32, and wraps.
inline int32_t doubling_high_multiply(int32_t a, int32_t b) {
  const int64_t product = int64_t{a} * b + (int64_t{1} << 30);
  return static_cast<int32_t>(product >> 31);
}

// round(dividend / 2^exponent), ties away from zero.
inline int32_t divide_by_power_of_two(int32_t dividend, int32_t exponent) {
  const uint32_t mask = (uint32_t{1} << exponent) - 1;
  const uint32_t remainder = static_cast<uint32_t>(dividend) & mask;
  const uint32_t threshold = (mask >> 1) + (dividend < 0 ? 1 : 0);
  return (dividend >> exponent) + (remainder > threshold ? 1 : 0);
}

// `shift` is -kMaxRightShift to kMaxLeftShift, to the left if positive.
inline int32_t requantize(int32_t value, int32_t multiplier, int32_t shift) {
  const int32_t left = shift > 0 ? shift : 0;
  const int32_t right = shift > 0 ? 0 : -shift;
  const int32_t shifted = static_cast<int32_t>(static_cast<uint32_t>(value) << left);
  return divide_by_power_of_two(doubling_high_multiply(shifted, multiplier), right);
}

#if defined(HIL_VECTOR_MVE)

// As the scalar one, but INT32_MIN * INT32_MIN saturates, as in CMSIS-NN's MVE code.
inline int32x4_t requantize(int32x4_t value, int32x4_t multiplier, int32x4_t shift) {
  const int32x4_t zero = vdupq_n_s32(0);
  const int32x4_t right = vminq_s32(shift, zero);
  const int32x4_t product = vqrdmulhq_s32(vshlq_s32(value, vmaxq_s32(shift, zero)), multiplier);
  // VRSHL rounds ties upwards: of a negative dividend less one, that is away from zero.
  const int32x4_t less = vmaxq_s32(vshrq_n_s32(product, 31), right);
  return vrshlq_s32(vqaddq_s32(product, less), right);
}

#endif

inline int32_t wrapping_add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

inline int32_t wrapping_multiply(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}

inline int32_t clamp(int32_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : value;
}

// The offset that is added to scaled sums, and their limits.
struct OutputRange {
  int32_t offset;
  int32_t low;
  int32_t high;
};

inline int8_t to_output(int32_t scaled, const OutputRange& range) {
  return static_cast<int8_t>(clamp(wrapping_add(scaled, range.offset), range.low, range.high));
}

#if defined(HIL_VECTOR_MVE)

inline int32x4_t to_output(int32x4_t scaled, const OutputRange& range) {
  const int32x4_t shifted = vaddq_n_s32(scaled, range.offset);
  return vminq_s32(vmaxq_s32(shifted, vdupq_n_s32(range.low)), vdupq_n_s32(range.high));
}

#endif

}  // namespace hil::builtin
