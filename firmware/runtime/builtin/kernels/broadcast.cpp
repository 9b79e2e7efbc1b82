#include "runtime/builtin/kernels/broadcast.h"

namespace hil::builtin {
namespace {

bool is_broadcast_size(const Operands& operands, int axis_from_end) {
  const auto size = [&](const Tensor& tensor) {
    return axis_from_end > tensor.rank ? 1 : tensor.size(-axis_from_end);
  };
  const uint32_t self = size(operands.self);
  return size(operands.out) == (self == 1 ? size(operands.other) : self);
}

}  // namespace

bool broadcast_strides(const Tensor& operand, const Tensor& out, Strides& strides) {
  if (operand.rank > out.rank) return false;
  Strides own = {};
  strides_of(operand, own);
  const int missing = out.rank - operand.rank;
  for (int axis = 0; axis < out.rank; ++axis) {
    const uint32_t size = axis < missing ? 1 : operand.size(axis - missing);
    if (size != 1 && size != out.size(axis)) return false;
    strides[axis] = size == 1 ? 0 : own[axis - missing];
  }
  return true;
}

bool check_broadcast(KernelContext& ctx, const Operands& operands) {
  if (!ctx.require_disjoint(operands.out, operands.self, "self") ||
      !ctx.require_disjoint(operands.out, operands.other, "other")) {
    return false;
  }
  for (int axis = 1; axis <= operands.out.rank; ++axis) {
    if (!ctx.require(is_broadcast_size(operands, axis), "self is ", operands.self, ", other is ",
                     operands.other, ", out is ", operands.out, ": dimension ", -axis,
                     " differs")) {
      return false;
    }
  }
  Strides unused = {};
  return ctx.require(broadcast_strides(operands.self, operands.out, unused) &&
                         broadcast_strides(operands.other, operands.out, unused),
                     "self is ", operands.self, ", other is ", operands.other, ", out is ",
                     operands.out, ": the shapes do not broadcast");
}

}  // namespace hil::builtin
