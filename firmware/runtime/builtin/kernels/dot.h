// Products of int8, summed in 32-bit wrapping accumulators: the vector form of each ISA class
// beside the scalar one. All forms give the same bits, since addition modulo 2^32 knows no order.
#pragma once

#include <cstdint>
#include <cstring>

#include "runtime/builtin/kernels/requantize.h"
#include "runtime/builtin/kernels/vector.h"

namespace hil::builtin {

constexpr int32_t kLanes = 4;  // sums that are made at once

// Places in two arrays that belong together, in rows and columns, from the first one on.
struct Grid {
  struct Steps {  // in bytes
    int32_t row;
    int32_t column;
  };
  int32_t rows;
  int32_t columns;
  Steps a;
  Steps b;

  static Grid one() { return {1, 1, {}, {}}; }

  // visit(how far the place is from the first one of a, the place in b)
  template <typename Visit>
  void for_each(const int8_t* first_b, const Visit& visit) const {
    int32_t first_a = 0;
    for (int32_t row = 0; row < rows; ++row) {
      int32_t at_a = first_a;
      const int8_t* at_b = first_b;
      for (int32_t column = 0; column < columns; ++column) {
        visit(at_a, at_b);
        at_a = wrapping_add(at_a, a.column);
        at_b += b.column;
      }
      first_a = wrapping_add(first_a, a.row);
      first_b += b.row;
    }
  }
};

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

#if defined(HIL_VECTOR_MVE)

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

#elif defined(HIL_VECTOR_DSP)

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

// Σ (a + a_offset)·b = Σ a·b + a_offset·Σ b: MVE multiplies int8 alone, so add_dots() leaves the
// second term, which does not depend on a, to its caller.
#if defined(HIL_VECTOR_MVE)
constexpr bool kOffsetApart = true;
#else
constexpr bool kOffsetApart = false;
#endif

// sums[i] += Σ (a + a_offset)·b, for i < kLanes, where the vectors b lie `stride` bytes apart. The
// term in brackets must fit in 16 bits.
void add_dots(const int8_t* a, int32_t a_offset, const int8_t* b, uint32_t stride, uint32_t count,
              int32_t* sums);

// sums[i] += Σ a[i]·b[i] over the grid's places, for i < `count`; all take a[0] unless `each`.
void add_products(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count,
                  int32_t* sums);

namespace scalar {

void add_dots(const int8_t* a, int32_t a_offset, const int8_t* b, uint32_t stride, uint32_t count,
              int32_t* sums);
void add_products(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count,
                  int32_t* sums);

}  // namespace scalar
}  // namespace hil::builtin
