// Dot products of int8 vectors with 32-bit wrapping accumulators: the vector form of each ISA class
// beside the scalar one. All forms give the same bits, since addition modulo 2^32 knows no order.
#pragma once

#include <cstdint>
#include <cstring>

#include "platform/isa.h"
#include "runtime/builtin/kernels/requantize.h"

// The class says what the build stands for, the feature macro what the compiler can emit: a host
// build of any class takes the scalar form.
#if defined(HIL_ISA_MVE) && defined(__ARM_FEATURE_MVE)
#define HIL_DOT_MVE 1
#include <arm_mve.h>
#elif defined(HIL_ISA_DSP) && defined(__ARM_FEATURE_DSP)
#define HIL_DOT_DSP 1
#include <arm_acle.h>
#endif

namespace hil::builtin {

namespace scalar {

// sum + Σ a·b
inline int32_t dot(const int8_t* a, const int8_t* b, uint32_t count, int32_t sum) {
  for (uint32_t i = 0; i < count; ++i) sum = wrapping_add(sum, a[i] * b[i]);
  return sum;
}

// Σ a
inline int32_t sum_of(const int8_t* a, uint32_t count) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum = wrapping_add(sum, a[i]);
  return sum;
}

// sum + Σ (a + a_offset)·(b + b_offset). Each term in brackets must fit in 16 bits.
inline int32_t dot_with_offsets(const int8_t* a, int32_t a_offset, const int8_t* b,
                                int32_t b_offset, uint32_t count, int32_t sum) {
  for (uint32_t i = 0; i < count; ++i) {
    sum = wrapping_add(sum, (a[i] + a_offset) * (b[i] + b_offset));
  }
  return sum;
}

}  // namespace scalar

#if defined(HIL_DOT_MVE)

inline int32_t dot(const int8_t* a, const int8_t* b, uint32_t count, int32_t sum) {
  for (; count > 0; count -= count < 16 ? count : 16, a += 16, b += 16) {
    const mve_pred16_t lanes = vctp8q(count);
    sum = vmladavaq_s8(sum, vldrbq_z_s8(a, lanes), vldrbq_z_s8(b, lanes));
  }
  return sum;
}

inline int32_t sum_of(const int8_t* a, uint32_t count) {
  int32_t sum = 0;
  for (; count > 0; count -= count < 16 ? count : 16, a += 16) {
    sum = vaddvaq_s8(sum, vldrbq_z_s8(a, vctp8q(count)));
  }
  return sum;
}

// Σ (a + a_offset)·(b + b_offset) = Σ a·b + b_offset·Σ a + a_offset·Σ b + count·a_offset·b_offset
inline int32_t dot_with_offsets(const int8_t* a, int32_t a_offset, const int8_t* b,
                                int32_t b_offset, uint32_t count, int32_t sum) {
  sum = dot(a, b, count, sum);
  const int32_t sum_b =
      wrapping_add(sum_of(b, count), wrapping_multiply(static_cast<int32_t>(count), b_offset));
  sum = wrapping_add(sum, wrapping_multiply(sum_b, a_offset));
  if (b_offset == 0) return sum;
  return wrapping_add(sum, wrapping_multiply(sum_of(a, count), b_offset));
}

#elif defined(HIL_DOT_DSP)

using scalar::dot;
using scalar::sum_of;

inline int16x2_t two_of(int32_t value) {
  return static_cast<int16x2_t>((static_cast<uint32_t>(value) & 0xFFFF) * 0x00010001u);
}

inline uint32_t four_of(const int8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

inline uint32_t odd_bytes(uint32_t word) { return word >> 8 | word << 24; }

inline int32_t dot_with_offsets(const int8_t* a, int32_t a_offset, const int8_t* b,
                                int32_t b_offset, uint32_t count, int32_t sum) {
  const int16x2_t a_offsets = two_of(a_offset);
  const int16x2_t b_offsets = two_of(b_offset);
  for (; count >= 4; count -= 4, a += 4, b += 4) {
    const uint32_t a_word = four_of(a);
    const uint32_t b_word = four_of(b);
    sum = __smlad(__sxtab16(a_offsets, static_cast<int8x4_t>(a_word)),
                  __sxtab16(b_offsets, static_cast<int8x4_t>(b_word)), sum);
    sum = __smlad(__sxtab16(a_offsets, static_cast<int8x4_t>(odd_bytes(a_word))),
                  __sxtab16(b_offsets, static_cast<int8x4_t>(odd_bytes(b_word))), sum);
  }
  return scalar::dot_with_offsets(a, a_offset, b, b_offset, count, sum);
}

#else

using scalar::dot;
using scalar::dot_with_offsets;
using scalar::sum_of;

#endif

}  // namespace hil::builtin
