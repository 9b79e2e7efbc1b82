// ATen's functions of one tensor, item by item: float32, and integers where those need none of
// libm's.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/float_math.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// After done(). One loop for all functions; what they take besides is in `parameters`.
using Function = float (*)(float x, const float* parameters);

void compute_floats(KernelContext& ctx, const Tensor& self, const Tensor& out, Function function,
                    const float* parameters = nullptr) {
  if (!check_alike(ctx, self, out)) return;
  compute_alike<float, float>(self, out,
                              [=](float x) { return canonical_nan(function(x, parameters)); });
}

// A function that takes nothing besides.
template <float (*kFunction)(float)>
float plain(float x, const float* /*parameters*/) {
  return kFunction(x);
}

// (Tensor self, *, Tensor(a!) out)
void compute_floats(KernelContext& ctx, Function function) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Tensor& out = ctx.out(DType::kFloat32);
  if (ctx.done()) compute_floats(ctx, self, out, function);
}

// (Tensor self, *, Tensor(a!) out), of integers too
template <typename Compute>
void compute_numbers(KernelContext& ctx, const Compute& compute) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  visit_dtype<float, int32_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    compute_alike<T, T>(self, out, [&](T value) { return one_result<T>(compute(value)); });
  });
}

// The negative of the smallest integer is that integer, as in ATen.
template <typename T>
T negative(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return -value;
  } else {
    return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(value));
  }
}

template <typename T>
T magnitude(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(value);
  } else {
    return value < 0 ? negative(value) : value;
  }
}

// 0.5 x (1 + erf(x / sqrt(2))), in double as ExecuTorch computes it
float gelu_of(float x, const float* /*parameters*/) {
  constexpr double kSqrtHalf = 0.70710678118654752440;
  if (std::isinf(x)) return x < 0 ? 0.0f : x;
  return static_cast<float>(0.5 * x * (1 + math::erf(x * kSqrtHalf)));
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
float gelu_by_tanh(float x, const float* /*parameters*/) {
  constexpr float kBeta = 0.797884560802865355879f;
  constexpr float kKappa = 0.044715f;
  if (std::isinf(x)) return x < 0 ? 0.0f : x;
  const float inner = kBeta * (x + kKappa * (x * x * x));
  return static_cast<float>(0.5 * x * (1.0 + math::tanh(inner)));
}

// relu6(x + 3) / 6
float hardsigmoid_of(float x, const float* /*parameters*/) {
  const float above = x + 3.0f;
  return (above < 0 ? 0.0f : above > 6.0f ? 6.0f : above) / 6.0f;
}

bool is_text(const char* text, const char* other) { return std::strcmp(text, other) == 0; }

}  // namespace

// aten::abs.out(Tensor self, *, Tensor(a!) out)
void abs(KernelContext& ctx) {
  compute_numbers(ctx, [](auto x) { return magnitude(x); });
}

// aten::exp.out(Tensor self, *, Tensor(a!) out), and log, log1p, tanh, sin, cos, sqrt
void exp(KernelContext& ctx) { compute_floats(ctx, plain<math::exp>); }
void log(KernelContext& ctx) { compute_floats(ctx, plain<math::log>); }
void log1p(KernelContext& ctx) { compute_floats(ctx, plain<math::log1p>); }
void tanh(KernelContext& ctx) { compute_floats(ctx, plain<math::tanh>); }
void sin(KernelContext& ctx) { compute_floats(ctx, plain<math::sin>); }
void cos(KernelContext& ctx) { compute_floats(ctx, plain<math::cos>); }
void sqrt(KernelContext& ctx) { compute_floats(ctx, plain<std::sqrt>); }

// aten::ceil.out(Tensor self, *, Tensor(a!) out), and floor, trunc, and round, whose ties go to
// even
void ceil(KernelContext& ctx) { compute_floats(ctx, plain<std::ceil>); }
void floor(KernelContext& ctx) { compute_floats(ctx, plain<std::floor>); }
void trunc(KernelContext& ctx) { compute_floats(ctx, plain<std::trunc>); }
void round(KernelContext& ctx) { compute_floats(ctx, plain<std::nearbyint>); }

// aten::rsqrt.out(Tensor self, *, Tensor(a!) out)
void rsqrt(KernelContext& ctx) {
  compute_floats(ctx, [](float x, const float*) { return static_cast<float>(1.0 / std::sqrt(x)); });
}

// aten::reciprocal.out(Tensor self, *, Tensor(a!) out)
void reciprocal(KernelContext& ctx) {
  compute_floats(ctx, [](float x, const float*) { return 1.0f / x; });
}

// aten::neg.out(Tensor self, *, Tensor(a!) out)
void neg(KernelContext& ctx) {
  compute_numbers(ctx, [](auto x) { return negative(x); });
}

// aten::relu.out(Tensor self, *, Tensor(a!) out)
void relu(KernelContext& ctx) {
  compute_floats(ctx, [](float x, const float*) { return x < 0 ? 0.0f : x; });
}

// aten::sigmoid.out(Tensor self, *, Tensor(a!) out)
void sigmoid(KernelContext& ctx) {
  compute_floats(ctx, [](float x, const float*) { return 1.0f / (1.0f + math::exp(-x)); });
}

// aten::hardsigmoid.out(Tensor self, *, Tensor(a!) out)
void hardsigmoid(KernelContext& ctx) { compute_floats(ctx, hardsigmoid_of); }

// aten::hardswish.out(Tensor self, *, Tensor(a!) out)
void hardswish(KernelContext& ctx) {
  compute_floats(ctx, [](float x, const float*) {
    const float above = x + 3.0f;
    return x * (above < 0 ? 0.0f : above > 6.0f ? 6.0f : above) / 6.0f;
  });
}

// aten::silu.out(Tensor self, *, Tensor(a!) out)
void silu(KernelContext& ctx) {
  compute_floats(ctx, [](float x, const float*) { return x / (1.0f + math::exp(-x)); });
}

// aten::gelu.out(Tensor self, *, str approximate='none', Tensor(a!) out)
void gelu(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const char* approximate = ctx.string("approximate");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return;
  if (is_text(approximate, "tanh")) {
    compute_floats(ctx, self, out, gelu_by_tanh);
  } else if (ctx.require(is_text(approximate, "none"),
                         "approximate is neither 'none' nor 'tanh'")) {
    compute_floats(ctx, self, out, gelu_of);
  }
}

// aten::leaky_relu.out(Tensor self, Scalar negative_slope=0.01, *, Tensor(a!) out)
void leaky_relu(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const float slope = static_cast<float>(ctx.number("negative_slope"));
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return;
  compute_floats(
      ctx, self, out, [](float x, const float* with) { return x >= 0 ? x : x * with[0]; }, &slope);
}

// aten::elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1, *,
//     Tensor(a!) out)
void elu(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const float alpha = static_cast<float>(ctx.number("alpha"));
  const float scale = static_cast<float>(ctx.number("scale"));
  const float parameters[] = {alpha * scale, scale, static_cast<float>(ctx.number("input_scale"))};
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return;
  compute_floats(
      ctx, self, out,
      [](float x, const float* with) {
        return x <= 0 ? math::expm1(x * with[2]) * with[0] : x * with[1];
      },
      parameters);
}

// aten::pow.Tensor_Scalar_out(Tensor self, Scalar exponent, *, Tensor(a!) out)
void pow_scalar(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const float exponent = static_cast<float>(ctx.number("exponent"));
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return;
  compute_floats(
      ctx, self, out, [](float x, const float* with) { return math::pow(x, with[0]); }, &exponent);
}

// aten::logical_not.out(Tensor self, *, Tensor(a!) out)
void logical_not(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kBool);
  const Tensor& out = ctx.out(DType::kBool);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  compute_alike<Bool, Bool>(self, out, [](Bool x) { return static_cast<Bool>(x == 0); });
}

// aten::bitwise_not.out(Tensor self, *, Tensor(a!) out)
void bitwise_not(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  visit_dtype<Bool, int32_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    compute_alike<T, T>(self, out, [](T x) {
      if constexpr (std::is_same_v<T, Bool>) return static_cast<T>(x == 0);
      return static_cast<T>(~x);
    });
  });
}

}  // namespace hil::builtin
