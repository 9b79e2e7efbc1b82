// ATen's softmax in float32, over any dimension.
#include <cmath>
#include <cstring>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/one_nan.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {
namespace {

// e^x for x <= 0, to within a rounding of float; NaN stays. C libraries differ in the last bit, and
// targets must not: so this is plain arithmetic in double, e^x = 2^k e^r with |r| <= ln(2)/2.
float exp_of(float x) {
  constexpr double kLog2E = 1.4426950408889634074;
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr float kLeast = -104.0f;  // below, the result is 0 in float
  if (!(x >= kLeast)) return std::isnan(x) ? x : 0.0f;
  const int32_t k = static_cast<int32_t>(x * kLog2E - 0.5);
  const double r = x - k * kLn2;
  // Taylor's polynomial; the first term left out is under 1e-14.
  double sum = 1.0;
  for (int n = 12; n > 0; --n) sum = 1.0 + sum * r / n;
  const uint64_t bits = static_cast<uint64_t>(1023 + k) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof(power));
  return static_cast<float>(sum * power);
}

// A row along the dimension: `size` items, `stride` items apart.
void compute_row(const float* from, float* to, uint32_t size, uint32_t stride, uint32_t to_stride) {
  float largest = from[0];
  for (uint32_t i = 1; i < size; ++i) {
    const float value = from[i * stride];
    if (!(value <= largest) && largest == largest) largest = value;
  }
  float sum = 0;
  for (uint32_t i = 0; i < size; ++i) {
    const float power = exp_of(from[i * stride] - largest);
    to[i * to_stride] = power;
    sum += power;
  }
  for (uint32_t i = 0; i < size; ++i) to[i * to_stride] = one_nan(to[i * to_stride] / sum);
}

}  // namespace

// aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)
void softmax_float(KernelContext& ctx) {
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
                to[axis]);
  }
}

}  // namespace hil::builtin
