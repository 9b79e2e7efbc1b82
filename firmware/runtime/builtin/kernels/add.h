// Sums of quantised items: the arithmetic of CMSIS-NN's arm_elementwise_add_s8, the vector form
// beside the scalar one.
#pragma once

#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {

struct Scaling {
  int32_t multiplier;
  int32_t shift;

  int32_t apply(int32_t value) const { return requantize(value, multiplier, shift); }
#if defined(HIL_VECTOR_MVE)
  int32x4_t apply(int32x4_t value) const {
    return requantize(value, vdupq_n_s32(multiplier), vdupq_n_s32(shift));
  }
#endif
};

struct Summand {
  int32_t zero_point;
  Scaling scaling;
};

struct Addition {
  // Room for the fraction: 9 bits of an int8 less its zero point, 20 of these.
  static constexpr int kFractionBits = 20;

  Summand self;
  Summand other;
  Scaling scaling;
  OutputRange range;

  int8_t of(int32_t self_item, int32_t other_item) const {
    return to_output(
        scaling.apply(wrapping_add(scaled(self, self_item), scaled(other, other_item))), range);
  }

  static int32_t scaled(const Summand& summand, int32_t item) {
    return summand.scaling.apply((item - summand.zero_point) * (1 << kFractionBits));
  }
};

namespace scalar {

inline void add_all(const Addition& addition, const int8_t* self, const int8_t* other,
                    uint32_t count, int8_t* out) {
  for (uint32_t i = 0; i < count; ++i) out[i] = addition.of(self[i], other[i]);
}

}  // namespace scalar

#if defined(HIL_VECTOR_MVE)

inline int32x4_t scaled(const Summand& summand, int32x4_t items) {
  const int32x4_t differences = vsubq_n_s32(items, summand.zero_point);
  return summand.scaling.apply(vshlq_n_s32(differences, Addition::kFractionBits));
}

inline void add_all(const Addition& addition, const int8_t* self, const int8_t* other,
                    uint32_t count, int8_t* out) {
  const OutputRange range = addition.range;
  for (uint32_t i = 0; i < count; i += 4) {
    const mve_pred16_t lanes = vctp32q(count - i);
    const int32x4_t sum = vaddq_s32(scaled(addition.self, vldrbq_z_s32(self + i, lanes)),
                                    scaled(addition.other, vldrbq_z_s32(other + i, lanes)));
    vstrbq_p_s32(out + i, to_output(addition.scaling.apply(sum), range), lanes);
  }
}

#else

using scalar::add_all;

#endif

}  // namespace hil::builtin
