// ATen's softmax and its logarithm in float32, over any dimension.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/canonical_nan.h"
#include "runtime/builtin/kernels/float_math.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {
namespace {

// A row along the dimension: `size` items, `stride` items apart.
void compute_row(const float* from, float* to, uint32_t size, uint32_t stride, uint32_t to_stride,
                 bool logarithm) {
  float largest = from[0];
  for (uint32_t i = 1; i < size; ++i) {
    const float value = from[i * stride];
    if (!(value <= largest) && largest == largest) largest = value;
  }
  float sum = 0;
  for (uint32_t i = 0; i < size; ++i) {
    const float power = math::exp(from[i * stride] - largest);
    to[i * to_stride] = power;
    sum += power;
  }
  const float log_of_sum = logarithm ? math::log(sum) : 0.0f;
  for (uint32_t i = 0; i < size; ++i) {
    float* item = to + i * to_stride;
    *item = canonical_nan(logarithm ? from[i * stride] - largest - log_of_sum : *item / sum);
  }
}

// (Tensor self, int dim, bool half_to_float, *, Tensor(a!) out): softmax, or its logarithm.
void compute(KernelContext& ctx, bool logarithm) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Argument dim = ctx.any("dim");
  const bool half_to_float = ctx.boolean("half_to_float");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return;
  const int axis = ctx.axis(dim, self.rank);
  if (!ctx.ok() || !ctx.require(!half_to_float, "half_to_float is True, and self no half") ||
      !ctx.require(same_shape(self, out), "self is ", self, ", out is ", out,
                   ": the shapes differ") ||
      !ctx.require_disjoint(out, self, "self") || self.numel == 0) {
    return;
  }
  Strides from = {};
  Strides to = {};
  strides_of(self, from);
  strides_of(out, to);
  // Along `self`: the first item of each row begins one.
  Walk<2> walk(self);
  strides_of(out, walk.strides(0));
  walk.strides(1)[axis] = 1;
  for (uint32_t i = 0; i < self.numel; ++i, walk.next()) {
    if (walk.at(1) != 0) continue;
    compute_row(self.as<float>() + i, out.as<float>() + walk.at(0), self.size(axis), from[axis],
                to[axis], logarithm);
  }
}

}  // namespace

// aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)
void softmax_float(KernelContext& ctx) { compute(ctx, false); }

// aten::_log_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)
void log_softmax_float(KernelContext& ctx) { compute(ctx, true); }

}  // namespace hil::builtin
