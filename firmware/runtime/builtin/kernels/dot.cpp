// Each in a function of its own, so that the innermost loop has the registers to itself.
#include "runtime/builtin/kernels/dot.h"

namespace hil::builtin {

namespace scalar {

void add_dots(const int8_t* a, int32_t a_offset, const int8_t* b, uint32_t stride, uint32_t count,
              int32_t* sums) {
  // Two at a time, for which ARMv6-M has the registers.
  for (int32_t i = 0; i < kLanes; i += 2, b += 2 * stride) {
    const int8_t* next = b + stride;
    int32_t sum = sums[i];
    int32_t next_sum = sums[i + 1];
    for (uint32_t at = 0; at < count; ++at) {
      const int32_t item = a[at] + a_offset;
      sum = wrapping_add(sum, item * b[at]);
      next_sum = wrapping_add(next_sum, item * next[at]);
    }
    sums[i] = sum;
    sums[i + 1] = next_sum;
  }
}

void add_products(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count,
                  int32_t* sums) {
  for (; count >= kLanes; count -= kLanes, b += kLanes, sums += kLanes) {
    int32_t sum0 = sums[0];
    int32_t sum1 = sums[1];
    int32_t sum2 = sums[2];
    int32_t sum3 = sums[3];
    if (each) {
      grid.for_each(b, [&](int32_t at, const int8_t* at_b) {
        const int8_t* at_a = a + at;
        sum0 = wrapping_add(sum0, at_a[0] * at_b[0]);
        sum1 = wrapping_add(sum1, at_a[1] * at_b[1]);
        sum2 = wrapping_add(sum2, at_a[2] * at_b[2]);
        sum3 = wrapping_add(sum3, at_a[3] * at_b[3]);
      });
      a += kLanes;
    } else {
      grid.for_each(b, [&](int32_t at, const int8_t* at_b) {
        const int8_t item = a[at];
        sum0 = wrapping_add(sum0, item * at_b[0]);
        sum1 = wrapping_add(sum1, item * at_b[1]);
        sum2 = wrapping_add(sum2, item * at_b[2]);
        sum3 = wrapping_add(sum3, item * at_b[3]);
      });
    }
    sums[0] = sum0;
    sums[1] = sum1;
    sums[2] = sum2;
    sums[3] = sum3;
  }
  for (int32_t i = 0; i < count; ++i) {
    int32_t sum = sums[i];
    grid.for_each(b + i, [&](int32_t at, const int8_t* at_b) {
      sum = wrapping_add(sum, a[at + (each ? i : 0)] * *at_b);
    });
    sums[i] = sum;
  }
}

}  // namespace scalar

#if defined(HIL_VECTOR_MVE)

// Without the offset: see kOffsetApart.
void add_dots(const int8_t* a, int32_t, const int8_t* b0, uint32_t stride, uint32_t count,
              int32_t* sums) {
  const int8_t* b1 = b0 + stride;
  const int8_t* b2 = b1 + stride;
  const int8_t* b3 = b2 + stride;
  int32_t sum0 = sums[0];
  int32_t sum1 = sums[1];
  int32_t sum2 = sums[2];
  int32_t sum3 = sums[3];
  for (uint32_t vectors = count / 16; vectors > 0; --vectors) {
    const int8x16_t items = vldrbq_s8(a);
    sum0 = vmladavaq_s8(sum0, items, vldrbq_s8(b0));
    sum1 = vmladavaq_s8(sum1, items, vldrbq_s8(b1));
    sum2 = vmladavaq_s8(sum2, items, vldrbq_s8(b2));
    sum3 = vmladavaq_s8(sum3, items, vldrbq_s8(b3));
    a += 16;
    b0 += 16;
    b1 += 16;
    b2 += 16;
    b3 += 16;
  }
  if (count % 16 != 0) {
    const mve_pred16_t lanes = vctp8q(count % 16);
    const int8x16_t items = vldrbq_z_s8(a, lanes);
    sum0 = vmladavaq_s8(sum0, items, vldrbq_z_s8(b0, lanes));
    sum1 = vmladavaq_s8(sum1, items, vldrbq_z_s8(b1, lanes));
    sum2 = vmladavaq_s8(sum2, items, vldrbq_z_s8(b2, lanes));
    sum3 = vmladavaq_s8(sum3, items, vldrbq_z_s8(b3, lanes));
  }
  sums[0] = sum0;
  sums[1] = sum1;
  sums[2] = sum2;
  sums[3] = sum3;
}

void add_products(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count,
                  int32_t* sums) {
  for (; count >= 16; count -= 16, b += 16, sums += 16) {
    int32x4_t sums0 = vldrwq_s32(sums);
    int32x4_t sums1 = vldrwq_s32(sums + 4);
    int32x4_t sums2 = vldrwq_s32(sums + 8);
    int32x4_t sums3 = vldrwq_s32(sums + 12);
    if (each) {
      grid.for_each(b, [&](int32_t at, const int8_t* at_b) {
        const int8_t* at_a = a + at;
        sums0 = vaddq_s32(sums0, vmulq_s32(vldrbq_s32(at_a), vldrbq_s32(at_b)));
        sums1 = vaddq_s32(sums1, vmulq_s32(vldrbq_s32(at_a + 4), vldrbq_s32(at_b + 4)));
        sums2 = vaddq_s32(sums2, vmulq_s32(vldrbq_s32(at_a + 8), vldrbq_s32(at_b + 8)));
        sums3 = vaddq_s32(sums3, vmulq_s32(vldrbq_s32(at_a + 12), vldrbq_s32(at_b + 12)));
      });
      a += 16;
    } else {
      grid.for_each(b, [&](int32_t at, const int8_t* at_b) {
        const int8_t item = a[at];
        sums0 = vmlaq_n_s32(sums0, vldrbq_s32(at_b), item);
        sums1 = vmlaq_n_s32(sums1, vldrbq_s32(at_b + 4), item);
        sums2 = vmlaq_n_s32(sums2, vldrbq_s32(at_b + 8), item);
        sums3 = vmlaq_n_s32(sums3, vldrbq_s32(at_b + 12), item);
      });
    }
    vstrwq_s32(sums, sums0);
    vstrwq_s32(sums + 4, sums1);
    vstrwq_s32(sums + 8, sums2);
    vstrwq_s32(sums + 12, sums3);
  }
  for (; count > 0; count -= 4, b += 4, sums += 4) {
    const mve_pred16_t lanes = vctp32q(static_cast<uint32_t>(count));
    int32x4_t part = vldrwq_z_s32(sums, lanes);
    if (each) {
      grid.for_each(b, [&](int32_t at, const int8_t* at_b) {
        const int32x4_t items = vldrbq_z_s32(a + at, lanes);
        part = vaddq_s32(part, vmulq_s32(items, vldrbq_z_s32(at_b, lanes)));
      });
      a += 4;
    } else {
      grid.for_each(b, [&](int32_t at, const int8_t* at_b) {
        part = vmlaq_n_s32(part, vldrbq_z_s32(at_b, lanes), a[at]);
      });
    }
    vstrwq_p_s32(sums, part, lanes);
  }
}

#elif defined(HIL_VECTOR_DSP)

namespace {

inline int32_t dot_of_four(int16x2_t even, int16x2_t odd, const int8_t* b, int32_t sum) {
  const uint32_t word = four_of(b);
  sum = __smlad(__sxtb16(static_cast<int8x4_t>(word)), even, sum);
  return __smlad(__sxtb16(static_cast<int8x4_t>(odd_bytes(word))), odd, sum);
}

}  // namespace

void add_dots(const int8_t* a, int32_t a_offset, const int8_t* b0, uint32_t stride, uint32_t count,
              int32_t* sums) {
  const int16x2_t offsets = two_of(a_offset);
  const int8_t* b1 = b0 + stride;
  const int8_t* b2 = b1 + stride;
  const int8_t* b3 = b2 + stride;
  int32_t sum0 = sums[0];
  int32_t sum1 = sums[1];
  int32_t sum2 = sums[2];
  int32_t sum3 = sums[3];
  const int8_t* const end = a + count;
  while (end - a >= 4) {
    const uint32_t word = four_of(a);
    const int16x2_t even = __sxtab16(offsets, static_cast<int8x4_t>(word));
    const int16x2_t odd = __sxtab16(offsets, static_cast<int8x4_t>(odd_bytes(word)));
    sum0 = dot_of_four(even, odd, b0, sum0);
    sum1 = dot_of_four(even, odd, b1, sum1);
    sum2 = dot_of_four(even, odd, b2, sum2);
    sum3 = dot_of_four(even, odd, b3, sum3);
    a += 4;
    b0 += 4;
    b1 += 4;
    b2 += 4;
    b3 += 4;
  }
  while (a != end) {
    const int32_t item = *a++ + a_offset;
    sum0 = wrapping_add(sum0, item * *b0++);
    sum1 = wrapping_add(sum1, item * *b1++);
    sum2 = wrapping_add(sum2, item * *b2++);
    sum3 = wrapping_add(sum3, item * *b3++);
  }
  sums[0] = sum0;
  sums[1] = sum1;
  sums[2] = sum2;
  sums[3] = sum3;
}

void add_products(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count,
                  int32_t* sums) {
  scalar::add_products(grid, a, each, b, count, sums);
}

#else

void add_dots(const int8_t* a, int32_t a_offset, const int8_t* b, uint32_t stride, uint32_t count,
              int32_t* sums) {
  scalar::add_dots(a, a_offset, b, stride, count, sums);
}

void add_products(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count,
                  int32_t* sums) {
  scalar::add_products(grid, a, each, b, count, sums);
}

#endif

}  // namespace hil::builtin
