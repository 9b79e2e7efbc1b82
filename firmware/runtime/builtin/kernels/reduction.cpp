// ATen's reductions over some dimensions, or all: int8 and float32.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {
namespace {

// Bit n: dimension n is reduced. No dimension stands for all.
uint32_t axes_of(KernelContext& ctx, const IntList& dims, int rank) {
  if (dims.size() == 0) return (1u << rank) - 1;
  uint32_t axes = 0;
  for (uint32_t i = 0; i < dims.size(); ++i) {
    const int64_t axis = dims[i] < 0 ? dims[i] + rank : dims[i];
    if (!ctx.require(axis >= 0 && axis < rank && (axes >> axis & 1) == 0, "dim item ", i, " is ",
                     dims[i], ": no dimension of a tensor of rank ", rank, ", or one twice")) {
      return 0;
    }
    axes |= 1u << axis;
  }
  return axes;
}

// The stride of `out` for each dimension of `self`, 0 for those reduced. False where the shapes do
// not agree.
bool reduced_strides(const Tensor& self, uint32_t axes, bool keepdim, const Tensor& out,
                     Strides& strides) {
  Strides own = {};
  strides_of(out, own);
  int to = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    const bool reduced = (axes >> axis & 1) != 0;
    if (reduced && !keepdim) continue;
    if (to >= out.rank || out.size(to) != (reduced ? 1 : self.size(axis))) return false;
    strides[axis] = reduced ? 0 : own[to];
    ++to;
  }
  return to == out.rank;
}

// NaN is larger than anything, as ATen has it.
template <typename T>
void keep_larger(T* largest, T value) {
  const bool is_number = *largest == *largest;  // NOLINT(misc-redundant-expression)
  if (is_number && !(value <= *largest)) *largest = value;
}

template <typename T>
void largest_of_all(const Tensor& self, const Tensor& out, T lowest, Walk<1>& walk) {
  for (uint32_t i = 0; i < out.numel; ++i) out.as<T>()[i] = lowest;
  for (uint32_t i = 0; i < self.numel; ++i, walk.next()) {
    keep_larger(&out.as<T>()[walk.at(0)], self.as<T>()[i]);
  }
}

}  // namespace

// aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out)
void amax(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList dims = ctx.int_list("dim");
  const bool keepdim = ctx.boolean("keepdim");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const uint32_t axes = axes_of(ctx, dims, self.rank);
  Walk<1> walk(self);
  if (!ctx.ok() ||
      !ctx.require(reduced_strides(self, axes, keepdim, out, walk.strides(0)), "self is ", self,
                   ", out is ", out, ": not what its dimensions leave") ||
      !ctx.require(self.numel != 0 || out.numel == 0, "self is ", self,
                   ": the largest of nothing") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  if (self.dtype == DType::kFloat32) {
    largest_of_all(self, out, -__builtin_inff(), walk);
  } else if (ctx.require(self.dtype == DType::kInt8, "self is ", self,
                         ", the operator takes int8 and float32")) {
    largest_of_all(self, out, int8_t{INT8_MIN}, walk);
  }
}

}  // namespace hil::builtin
