// Two int8 tensors, item by item: the arithmetic of CMSIS-NN's arm_elementwise_add_s8,
// arm_elementwise_mul_s8, arm_minimum_s8 and arm_maximum_s8.
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/kernels.h"
#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {
namespace {

struct Operands {
  const Tensor& self;
  const Tensor& other;
  const Tensor& out;
};

// Do items of the same logical place lie at the same place in memory?
bool same_layout(const Tensor& a, const Tensor& b) {
  if (!same_shape(a, b)) return false;
  uint32_t a_strides[kMaxRank] = {};
  uint32_t b_strides[kMaxRank] = {};
  strides_of(a, a_strides);
  strides_of(b, b_strides);
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.size(axis) != 1 && a_strides[axis] != b_strides[axis]) return false;
  }
  return true;
}

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

struct Scaling {
  int32_t multiplier;
  int32_t shift;

  int32_t apply(int32_t value) const { return requantize(value, multiplier, shift); }
};

Scaling scaling_of(KernelContext& ctx, int i, const char* multiplier, const char* shift) {
  return {ctx.integer(i, multiplier, INT32_MIN, INT32_MAX),
          ctx.integer(i + 1, shift, -kMaxRightShift, kMaxLeftShift)};
}

int32_t zero_point_of(KernelContext& ctx, int i, const char* name) {
  return ctx.integer(i, name, INT8_MIN, INT8_MAX);
}

// Minimum and maximum: any broadcast of up to 4 dimensions.

constexpr int kMaxBroadcastRank = 4;

// In items, for each dimension of `out`; 0 where the operand has but one item.
bool broadcast_strides(const Tensor& operand, const Tensor& out, uint32_t (&strides)[kMaxRank]) {
  if (operand.rank > out.rank) return false;
  uint32_t own[kMaxRank] = {};
  strides_of(operand, own);
  const int missing = out.rank - operand.rank;
  for (int axis = 0; axis < out.rank; ++axis) {
    const uint32_t size = axis < missing ? 1 : operand.size(axis - missing);
    if (size != 1 && size != out.size(axis)) return false;
    strides[axis] = size == 1 ? 0 : own[axis - missing];
  }
  return true;
}

bool is_broadcast_size(const Operands& operands, int axis_from_end) {
  const auto size = [&](const Tensor& tensor) {
    return axis_from_end > tensor.rank ? 1 : tensor.size(-axis_from_end);
  };
  const uint32_t self = size(operands.self);
  return size(operands.out) == (self == 1 ? size(operands.other) : self);
}

// ExecuTorch's operator hands the sizes to CMSIS-NN as they stand, whatever the dim order.
bool check_broadcast(KernelContext& ctx, const Operands& operands) {
  const Tensor& out = operands.out;
  if (!ctx.require(out.rank <= kMaxBroadcastRank, "out is ", out, ", at most ", kMaxBroadcastRank,
                   " dimensions")) {
    return false;
  }
  for (int axis = 1; axis <= out.rank; ++axis) {
    if (!ctx.require(is_broadcast_size(operands, axis), "self is ", operands.self, ", other is ",
                     operands.other, ", out is ", out, ": dimension ", -axis, " differs")) {
      return false;
    }
  }
  return ctx.require(
      is_row_major(operands.self) && is_row_major(operands.other) && is_row_major(out),
      "self, other or out is not contiguous, and their shapes or dim orders differ");
}

template <typename Compute>
void compute_broadcast(KernelContext& ctx, const Operands& operands, const Compute& compute) {
  uint32_t self_strides[kMaxRank] = {};
  uint32_t other_strides[kMaxRank] = {};
  if (!ctx.require(broadcast_strides(operands.self, operands.out, self_strides) &&
                       broadcast_strides(operands.other, operands.out, other_strides),
                   "self is ", operands.self, ", other is ", operands.other, ", out is ",
                   operands.out, ": the shapes do not broadcast")) {
    return;
  }
  const int8_t* self = operands.self.as<int8_t>();
  const int8_t* other = operands.other.as<int8_t>();
  int8_t* out = operands.out.as<int8_t>();
  uint32_t position[kMaxRank] = {};
  for (uint32_t at = 0; at < operands.out.numel; ++at) {
    uint32_t i = 0;
    uint32_t j = 0;
    for (int axis = 0; axis < operands.out.rank; ++axis) {
      i += position[axis] * self_strides[axis];
      j += position[axis] * other_strides[axis];
    }
    out[at] = compute(self[i], other[j]);
    for (int axis = operands.out.rank - 1; axis >= 0; --axis) {
      if (++position[axis] < operands.out.size(axis)) break;
      position[axis] = 0;
    }
  }
}

template <typename Compute>
void choose(KernelContext& ctx, const Compute& compute) {
  const Operands operands = {ctx.tensor(0, "self", DType::kInt8),
                             ctx.tensor(1, "other", DType::kInt8), ctx.out(2, DType::kInt8)};
  if (!ctx.ok() || !check_disjoint(ctx, operands)) return;
  const bool alike =
      same_layout(operands.self, operands.out) && same_layout(operands.other, operands.out);
  const bool by_scalar = same_layout(operands.self, operands.out) && operands.other.numel == 1 &&
                         operands.other.rank <= operands.out.rank;
  if (alike || by_scalar) {
    compute_all(operands, compute);
  } else if (check_broadcast(ctx, operands)) {
    compute_broadcast(ctx, operands, compute);
  }
}

}  // namespace

// cortex_m::quantized_add.out(Tensor self, int self_zero_point, int self_multiplier,
//     int self_shift, Tensor other, int other_zero_point, int other_multiplier, int other_shift,
//     int output_zero_point, int output_multiplier, int output_shift, int activation_min,
//     int activation_max, *, Tensor(a!) out)
void quantized_add(KernelContext& ctx) {
  // Room for the fraction: 9 bits of an int8 less its zero point, 20 of these.
  constexpr int32_t kScaleUp = 1 << 20;
  const Operands operands = {ctx.tensor(0, "self", DType::kInt8),
                             ctx.tensor(4, "other", DType::kInt8), ctx.out(13, DType::kInt8)};
  const int32_t self_zero_point = zero_point_of(ctx, 1, "self_zero_point");
  const int32_t other_zero_point = zero_point_of(ctx, 5, "other_zero_point");
  const int32_t output_zero_point = zero_point_of(ctx, 8, "output_zero_point");
  const Scaling self_scaling = scaling_of(ctx, 2, "self_multiplier", "self_shift");
  const Scaling other_scaling = scaling_of(ctx, 6, "other_multiplier", "other_shift");
  const Scaling output_scaling = scaling_of(ctx, 9, "output_multiplier", "output_shift");
  const int32_t low = ctx.integer(11, "activation_min", INT8_MIN, INT8_MAX);
  const int32_t high = ctx.integer(12, "activation_max", INT8_MIN, INT8_MAX);
  if (!ctx.ok() || !check(ctx, operands)) return;
  if (!ctx.require(low <= high, "activation_min ", low, " is above activation_max ", high)) return;
  compute_all(operands, [&](int32_t self, int32_t other) {
    const int32_t sum = wrapping_add(self_scaling.apply((self - self_zero_point) * kScaleUp),
                                     other_scaling.apply((other - other_zero_point) * kScaleUp));
    const int32_t scaled = wrapping_add(output_scaling.apply(sum), output_zero_point);
    return static_cast<int8_t>(clamp(scaled, low, high));
  });
}

// cortex_m::quantized_mul.out(Tensor self, int self_zero_point, Tensor other,
//     int other_zero_point, int output_zero_point, int output_multiplier, int output_shift, *,
//     Tensor(a!) out)
void quantized_mul(KernelContext& ctx) {
  const Operands operands = {ctx.tensor(0, "self", DType::kInt8),
                             ctx.tensor(2, "other", DType::kInt8), ctx.out(7, DType::kInt8)};
  const int32_t self_zero_point = zero_point_of(ctx, 1, "self_zero_point");
  const int32_t other_zero_point = zero_point_of(ctx, 3, "other_zero_point");
  const int32_t output_zero_point = zero_point_of(ctx, 4, "output_zero_point");
  const Scaling scaling = scaling_of(ctx, 5, "output_multiplier", "output_shift");
  if (!ctx.ok() || !check(ctx, operands)) return;
  compute_all(operands, [&](int32_t self, int32_t other) {
    const int32_t product = (self - self_zero_point) * (other - other_zero_point);
    const int32_t scaled = wrapping_add(scaling.apply(product), output_zero_point);
    return static_cast<int8_t>(clamp(scaled, INT8_MIN, INT8_MAX));
  });
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
