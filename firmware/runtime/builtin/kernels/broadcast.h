// Two operands whose shapes broadcast to that of the result, as NumPy's and ATen's do.
#pragma once

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {

struct Operands {
  const Tensor& self;
  const Tensor& other;
  const Tensor& out;
};

// `operand`'s stride for each dimension of `out`. False where it does not broadcast to that shape.
bool broadcast_strides(const Tensor& operand, const Tensor& out, Strides& strides);

// Refuses operands that lie in `out`, and an `out` of another shape than theirs together.
bool check_broadcast(KernelContext& ctx, const Operands& operands);

// After check_broadcast, whatever the dim orders.
template <typename In, typename Out, typename Compute>
void compute_broadcast(const Operands& operands, const Compute& compute) {
  Walk<2> walk(operands.out);
  broadcast_strides(operands.self, operands.out, walk.strides(0));
  broadcast_strides(operands.other, operands.out, walk.strides(1));
  const In* self = operands.self.as<In>();
  const In* other = operands.other.as<In>();
  Out* out = operands.out.as<Out>();
  for (uint32_t i = 0; i < operands.out.numel; ++i, walk.next()) {
    out[i] = compute(self[walk.at(0)], other[walk.at(1)]);
  }
}

}  // namespace hil::builtin
