// Two quantised tensors, item by item: the arithmetic of CMSIS-NN's arm_elementwise_add_s8,
// arm_elementwise_mul_s8, arm_minimum_s8 and arm_maximum_s8, and of ExecuTorch's quantized_div.
#include <cmath>
#include <cstdlib>
#include <limits>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/add.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {
namespace {

bool check_disjoint(KernelContext& ctx, const Operands& operands) {
  return ctx.require_disjoint(operands.out, operands.self, "self") &&
         ctx.require_disjoint(operands.out, operands.other, "other");
}

// Sum and product: one shape for all, or [1, C, 1, 1] for one operand, channels innermost.

bool is_one_per_channel(const Tensor& tensor, const Tensor& image) {
  return tensor.rank == 4 && image.rank == 4 && tensor.size(1) == image.size(1) &&
         tensor.numel == tensor.size(1) && image.numel != 0;
}

bool check(KernelContext& ctx, const Operands& operands) {
  const Tensor& self = operands.self;
  const Tensor& other = operands.other;
  const Tensor& out = operands.out;
  if (!check_disjoint(ctx, operands)) return false;
  if (same_layout(self, out) && same_layout(other, out)) return true;
  const Tensor& whole = self.numel < other.numel ? other : self;
  const Tensor& part = self.numel < other.numel ? self : other;
  if (!ctx.require(
          same_layout(whole, out) && is_one_per_channel(part, whole), "self is ", self,
          ", other is ", other, ", out is ", out,
          ": one shape and dim order needed, or one item a channel in one of the inputs")) {
    return false;
  }
  image_of(ctx, out, "out", Layout::kChannelsLast);
  return ctx.ok();
}

// The smaller operand is read again and again; its size divides that of the other.
template <typename Compute>
void compute_all(const Operands& operands, const Compute& compute) {
  const int8_t* self = operands.self.as<int8_t>();
  const int8_t* other = operands.other.as<int8_t>();
  int8_t* out = operands.out.as<int8_t>();
  uint32_t i = 0;
  uint32_t j = 0;
  for (uint32_t at = 0; at < operands.out.numel; ++at) {
    out[at] = compute(self[i], other[j]);
    if (++i == operands.self.numel) i = 0;
    if (++j == operands.other.numel) j = 0;
  }
}

Scaling scaling_of(KernelContext& ctx, const char* multiplier, const char* shift) {
  return {ctx.integer(multiplier, INT32_MIN, INT32_MAX),
          ctx.integer(shift, -kMaxRightShift, kMaxLeftShift)};
}

int32_t zero_point_of(KernelContext& ctx, const char* name) {
  return ctx.integer(name, INT8_MIN, INT8_MAX);
}

// The zero point of a factor. The compiler adds a hard-swish's offset to it, so it may be no int8.
// CMSIS-NN's DSP code has 16 bits for it less an int8, its others the 32 of the product.
int32_t wide_zero_point_of(KernelContext& ctx, const char* name) {
#if defined(HIL_ISA_DSP)
  constexpr int32_t kLimit = INT16_MAX - 128;
#else
  constexpr int32_t kLimit = INT32_MAX / 128 - 128;
#endif
  return ctx.integer(name, -kLimit, kLimit);
}

bool check_product(KernelContext& ctx, int32_t self_zero_point, int32_t other_zero_point) {
  const int64_t most =
      (int64_t{std::abs(self_zero_point)} + 128) * (int64_t{std::abs(other_zero_point)} + 128);
  return ctx.require(most <= INT32_MAX, "zero points of ", self_zero_point, " and ",
                     other_zero_point, ": a product can leave int32");
}

// Quotient: in float, of one shape for all. CMSIS-NN has none; ExecuTorch's operator rounds ties
// away from zero.

template <typename Integer>
void divide_all(const Operands& operands, int32_t self_zero_point, int32_t other_zero_point,
                int32_t output_zero_point, float scale) {
  constexpr float kLow = std::numeric_limits<Integer>::min();
  constexpr float kHigh = std::numeric_limits<Integer>::max();
  const Integer* self = operands.self.as<Integer>();
  const Integer* other = operands.other.as<Integer>();
  Integer* out = operands.out.as<Integer>();
  for (uint32_t i = 0; i < operands.out.numel; ++i) {
    const int32_t divisor = other[i] - other_zero_point;
    const float quotient =
        divisor == 0 ? 0.0f
                     : static_cast<float>(self[i] - self_zero_point) / static_cast<float>(divisor);
    const float result = std::round(quotient * scale) + static_cast<float>(output_zero_point);
    out[i] = static_cast<Integer>(result < kLow ? kLow : result > kHigh ? kHigh : result);
  }
}

bool check_quotient(KernelContext& ctx, const Operands& operands, float scale) {
  const DType dtype = operands.out.dtype;
  return ctx.require(dtype == DType::kInt8 || dtype == DType::kInt16, "out is ", operands.out,
                     ", the operator takes int8 and int16") &&
         ctx.require(operands.self.dtype == dtype && operands.other.dtype == dtype, "self is ",
                     operands.self, ", other is ", operands.other, ", out is ", operands.out,
                     ": the dtypes differ") &&
         ctx.require(
             same_layout(operands.self, operands.out) && same_layout(operands.other, operands.out),
             "self is ", operands.self, ", other is ", operands.other, ", out is ", operands.out,
             ": one shape and dim order needed") &&
         ctx.require(std::isfinite(scale), "output_scale is not finite") &&
         check_disjoint(ctx, operands);
}

// Minimum and maximum: any broadcast of up to 4 dimensions.

constexpr int kMaxBroadcastRank = 4;

// ExecuTorch's operator hands the sizes to CMSIS-NN as they stand, whatever the dim order.
bool check_sizes(KernelContext& ctx, const Operands& operands) {
  const Tensor& out = operands.out;
  return ctx.require(out.rank <= kMaxBroadcastRank, "out is ", out, ", at most ", kMaxBroadcastRank,
                     " dimensions") &&
         check_broadcast(ctx, operands) &&
         ctx.require(
             is_row_major(operands.self) && is_row_major(operands.other) && is_row_major(out),
             "self, other or out is not contiguous, and their shapes or dim orders differ");
}

template <typename Compute>
void choose(KernelContext& ctx, const Compute& compute) {
  const Operands operands = {ctx.tensor("self", DType::kInt8), ctx.tensor("other", DType::kInt8),
                             ctx.out(DType::kInt8)};
  if (!ctx.done() || !check_disjoint(ctx, operands)) return;
  const bool alike =
      same_layout(operands.self, operands.out) && same_layout(operands.other, operands.out);
  const bool by_scalar = same_layout(operands.self, operands.out) && operands.other.numel == 1 &&
                         operands.other.rank <= operands.out.rank;
  if (alike || by_scalar) {
    compute_all(operands, compute);
  } else if (check_sizes(ctx, operands)) {
    compute_broadcast<int8_t, int8_t>(operands, compute);
  }
}

}  // namespace

// cortex_m::quantized_add.out(Tensor self, int self_zero_point, int self_multiplier,
//     int self_shift, Tensor other, int other_zero_point, int other_multiplier, int other_shift,
//     int output_zero_point, int output_multiplier, int output_shift, int activation_min,
//     int activation_max, *, Tensor(a!) out)
void quantized_add(KernelContext& ctx) {
  const Tensor& self_in = ctx.tensor("self", DType::kInt8);
  const int32_t self_zero_point = zero_point_of(ctx, "self_zero_point");
  const Scaling self_scaling = scaling_of(ctx, "self_multiplier", "self_shift");
  const Tensor& other_in = ctx.tensor("other", DType::kInt8);
  const int32_t other_zero_point = zero_point_of(ctx, "other_zero_point");
  const Scaling other_scaling = scaling_of(ctx, "other_multiplier", "other_shift");
  const int32_t output_zero_point = zero_point_of(ctx, "output_zero_point");
  const Scaling output_scaling = scaling_of(ctx, "output_multiplier", "output_shift");
  const int32_t low = ctx.integer("activation_min", INT8_MIN, INT8_MAX);
  const int32_t high = ctx.integer("activation_max", INT8_MIN, INT8_MAX);
  const Operands operands = {self_in, other_in, ctx.out(DType::kInt8)};
  if (!ctx.done() || !check(ctx, operands)) return;
  if (!ctx.require(low <= high, "activation_min ", low, " is above activation_max ", high)) return;
  const Addition addition = {{self_zero_point, self_scaling},
                             {other_zero_point, other_scaling},
                             output_scaling,
                             {output_zero_point, low, high}};
  if (self_in.numel == other_in.numel) {
    add_all(addition, self_in.as<int8_t>(), other_in.as<int8_t>(), operands.out.numel,
            operands.out.as<int8_t>());
  } else {
    compute_all(operands, [&](int32_t self, int32_t other) { return addition.of(self, other); });
  }
}

// cortex_m::quantized_mul.out(Tensor self, int self_zero_point, Tensor other,
//     int other_zero_point, int output_zero_point, int output_multiplier, int output_shift, *,
//     Tensor(a!) out)
void quantized_mul(KernelContext& ctx) {
  const Tensor& self_in = ctx.tensor("self", DType::kInt8);
  const int32_t self_zero_point = wide_zero_point_of(ctx, "self_zero_point");
  const Tensor& other_in = ctx.tensor("other", DType::kInt8);
  const int32_t other_zero_point = wide_zero_point_of(ctx, "other_zero_point");
  const int32_t output_zero_point = zero_point_of(ctx, "output_zero_point");
  const Scaling scaling = scaling_of(ctx, "output_multiplier", "output_shift");
  const Operands operands = {self_in, other_in, ctx.out(DType::kInt8)};
  if (!ctx.done() || !check(ctx, operands) ||
      !check_product(ctx, self_zero_point, other_zero_point)) {
    return;
  }
  compute_all(operands, [&](int32_t self, int32_t other) {
    const int32_t product = (self - self_zero_point) * (other - other_zero_point);
    const int32_t scaled = wrapping_add(scaling.apply(product), output_zero_point);
    return static_cast<int8_t>(clamp(scaled, INT8_MIN, INT8_MAX));
  });
}

// cortex_m::quantized_div.out(Tensor self, int self_zero_point, Tensor other,
//     int other_zero_point, int output_zero_point, float output_scale, *, Tensor(a!) out)
void quantized_div(KernelContext& ctx) {
  const Tensor& self_in = ctx.tensor("self");
  const int32_t self_zero_point = ctx.integer("self_zero_point", INT16_MIN, INT16_MAX);
  const Tensor& other_in = ctx.tensor("other");
  const int32_t other_zero_point = ctx.integer("other_zero_point", INT16_MIN, INT16_MAX);
  const int32_t output_zero_point = ctx.integer("output_zero_point", INT16_MIN, INT16_MAX);
  const float scale = static_cast<float>(ctx.number("output_scale"));
  const Operands operands = {self_in, other_in, ctx.out()};
  if (!ctx.done() || !check_quotient(ctx, operands, scale)) return;
  const auto divide = operands.out.dtype == DType::kInt8 ? divide_all<int8_t> : divide_all<int16_t>;
  divide(operands, self_zero_point, other_zero_point, output_zero_point, scale);
}

// cortex_m::minimum.out(Tensor self, Tensor other, *, Tensor(a!) out)
void minimum(KernelContext& ctx) {
  choose(ctx, [](int8_t self, int8_t other) { return self < other ? self : other; });
}

// cortex_m::maximum.out(Tensor self, Tensor other, *, Tensor(a!) out)
void maximum(KernelContext& ctx) {
  choose(ctx, [](int8_t self, int8_t other) { return self > other ? self : other; });
}

}  // namespace hil::builtin
