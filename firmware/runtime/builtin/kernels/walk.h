// Counts through the items of a tensor in its own memory order, and tells where the items that
// belong to each lie in `kCount` other tensors.
#pragma once

#include "runtime/builtin/value.h"

namespace hil::builtin {

using Strides = uint32_t[kMaxRank];

template <int kCount>
class Walk {
 public:
  explicit Walk(const Tensor& along) : along_(along) {}

  // To be filled in before the first step: in items of the other tensor, one for each dimension of
  // `along`; 0 where that has but one.
  Strides& strides(int other) { return strides_[other]; }

  uint32_t at(int other) const { return at_[other]; }

  void next() {
    for (int i = along_.rank - 1; i >= 0; --i) {
      const int dim = along_.dim_order[i];
      const bool wraps = ++position_[dim] == along_.size(dim);
      if (wraps) position_[dim] = 0;
      for (int other = 0; other < kCount; ++other) {
        const uint32_t stride = strides_[other][dim];
        at_[other] += wraps ? stride - stride * along_.size(dim) : stride;
      }
      if (!wraps) return;
    }
  }

 private:
  const Tensor& along_;
  Strides strides_[kCount] = {};
  uint32_t position_[kMaxRank] = {};
  uint32_t at_[kCount] = {};
};

}  // namespace hil::builtin
