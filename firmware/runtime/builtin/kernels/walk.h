// Counts through the items of a tensor in its own memory order, and tells where the items that
// belong to each lie in `kCount` other tensors; and through some of its dimensions.
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

// Bit n: dimension n.
using Axes = uint32_t;

inline Axes all_axes(int rank) { return (Axes{1} << rank) - 1; }

// Counts through some dimensions of a tensor in logical order, the last one fastest, and tells
// where the items lie, from the first.
class Rows {
 public:
  Rows(const Tensor& tensor, Axes axes) : tensor_(tensor), axes_(axes) {
    strides_of(tensor, strides_);
    for (int axis = 0; axis < tensor.rank; ++axis) {
      if (has(axis)) count_ *= tensor.size(axis);
    }
  }

  uint32_t count() const { return count_; }

  // visit(place of the item)
  template <typename Visit>
  void for_each(const Visit& visit) const {
    uint32_t position[kMaxRank] = {};
    uint32_t at = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      visit(at);
      for (int axis = tensor_.rank - 1; axis >= 0; --axis) {
        if (!has(axis)) continue;
        at += strides_[axis];
        if (++position[axis] < tensor_.size(axis)) break;
        at -= strides_[axis] * tensor_.size(axis);
        position[axis] = 0;
      }
    }
  }

 private:
  bool has(int axis) const { return (axes_ >> axis & 1) != 0; }

  const Tensor& tensor_;
  Axes axes_;
  Strides strides_ = {};
  uint32_t count_ = 1;
};

}  // namespace hil::builtin
