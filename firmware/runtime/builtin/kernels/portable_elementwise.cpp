// ATen's operators on two tensors or three, or on a tensor and numbers, item by item: float32,
// integers, and int8 where they only choose.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// Arithmetic

// Integers wrap, as ATen's do.
template <typename T, typename Compute>
T arithmetic(T self, T other, const Compute& compute) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical_nan(compute(self, other));
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(compute(static_cast<Unsigned>(self), static_cast<Unsigned>(other)));
  }
}

template <typename Compute>
void compute_numbers(KernelContext& ctx, const Operands& operands, const Compute& compute) {
  visit_dtype<float, int32_t, int64_t>(ctx, "self", operands.self, [&](auto item) {
    using T = decltype(item);
    compute_broadcast<T, T>(operands,
                            [&](T self, T other) { return arithmetic(self, other, compute); });
  });
}

// (Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out): `sign` times alpha times other.
void add_scaled(KernelContext& ctx, int sign) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& other = ctx.tensor("other", self.dtype);
  const Argument alpha = ctx.any("alpha");
  const Operands operands = {self, other, ctx.out(self.dtype)};
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  if (self.dtype == DType::kFloat32) {
    const float factor = static_cast<float>(sign) * number_of<float>(ctx, alpha);
    if (!ctx.ok()) return;
    compute_broadcast<float, float>(
        operands, [=](float one, float two) { return canonical_nan(one + factor * two); });
    return;
  }
  const int64_t factor = sign * int64_t{number_of<int32_t>(ctx, alpha)};
  if (!ctx.ok()) return;
  compute_numbers(ctx, operands, [=](auto one, auto two) {
    return one + static_cast<decltype(one)>(factor) * two;
  });
}

// The operands of an operator with (Tensor self, Tensor other, *, Tensor(a!) out).
Operands read_operands(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& other = ctx.tensor("other", self.dtype);
  return {self, other, ctx.out(self.dtype)};
}

// Choices

// As ATen: NaN, where there is one. Integers are compared as they stand.
template <typename Choose>
void choose(KernelContext& ctx, const Choose& choose_one) {
  const Operands operands = read_operands(ctx);
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  visit_dtype<float, int8_t, int32_t, int64_t>(ctx, "self", operands.self, [&](auto item) {
    using T = decltype(item);
    compute_broadcast<T, T>(operands, [&](T one, T two) {
      return one_result(is_nan(one) ? one : is_nan(two) ? two : choose_one(one, two));
    });
  });
}

// Comparisons: what two items can be to each other, as bits of those that make it true.
enum Order : uint8_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

template <typename T>
Bool is_one_of(uint32_t orders, T self, T other) {
  const uint32_t order = self < other    ? kLess
                         : self == other ? kEqual
                         : self > other  ? kGreater
                                         : kUnordered;
  return (orders & order) != 0 ? 1 : 0;
}

template <typename T>
void compare_all(const Operands& operands, uint32_t orders) {
  compute_broadcast<T, Bool>(operands,
                             [=](T self, T other) { return is_one_of(orders, self, other); });
}

// (Tensor self, Tensor other, *, Tensor(a!) out)
void compare(KernelContext& ctx, uint32_t orders) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& other = ctx.tensor("other", self.dtype);
  const Operands operands = {self, other, ctx.out(DType::kBool)};
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  visit_dtype<float, int8_t, int32_t, int64_t, Bool>(
      ctx, "self", self, [&](auto item) { compare_all<decltype(item)>(operands, orders); });
}

// (Tensor self, Scalar other, *, Tensor(a!) out); not of int8, which is quantised, and the number
// is not.
void compare_to_number(KernelContext& ctx, uint32_t orders) {
  const Tensor& self = ctx.tensor("self");
  const Argument other = ctx.any("other");
  const Tensor& out = ctx.out(DType::kBool);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  visit_dtype<float, int32_t, int64_t, Bool>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    const NumberTensor<T> number(number_of<T>(ctx, other));
    if (ctx.ok()) compare_all<T>({self, number.tensor(), out}, orders);
  });
}

// A logical operator on two booleans: bit n of `table` is the result where n is 2 * self + other.
void combine(KernelContext& ctx, uint32_t table) {
  const Operands operands = {ctx.tensor("self", DType::kBool), ctx.tensor("other", DType::kBool),
                             ctx.out(DType::kBool)};
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  compute_broadcast<Bool, Bool>(operands, [=](Bool self, Bool other) {
    return static_cast<Bool>(table >> (2 * (self != 0) + (other != 0)) & 1);
  });
}

// Bit by bit; of truths it is one truth.
template <typename Compute>
void compute_bits(KernelContext& ctx, const Compute& compute) {
  const Operands operands = read_operands(ctx);
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  visit_dtype<Bool, int32_t, int64_t>(ctx, "self", operands.self, [&](auto item) {
    using T = decltype(item);
    compute_broadcast<T, T>(operands, [&](T self, T other) {
      if constexpr (std::is_same_v<T, Bool>) return static_cast<T>(compute(self != 0, other != 0));
      return static_cast<T>(compute(self, other));
    });
  });
}

// Down to a whole number, as ATen does it: from the remainder, since the quotient may round to the
// next one. By zero it is an infinity or NaN.
inline float divided_down(float self, float other) {
  if (other == 0) return self / other;
  const float remainder = std::fmod(self, other);
  float quotient = (self - remainder) / other;
  if (remainder != 0 && std::signbit(remainder) != std::signbit(other)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0f, self / other);
  const float whole = std::floor(quotient);
  return quotient - whole > 0.5f ? whole + 1 : whole;
}

// Towards zero, or down.
template <typename T>
T divided(T self, T other, bool down) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical_nan(down ? divided_down(self, other) : std::trunc(self / other));
  } else {
    if (other == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(self));
    const T quotient = self / other;
    const bool is_above = down && (self < 0) != (other < 0) && self % other != 0;
    return static_cast<T>(is_above ? quotient - 1 : quotient);
  }
}

// The remainder with the divisor's sign, as in ATen: ExecuTorch's has the dividend's where it is of
// integers (known bug 30).
template <typename T>
T remainder_of(T self, T other) {
  if constexpr (std::is_floating_point_v<T>) {
    const float rest = std::fmod(self, other);
    return canonical_nan(rest != 0 && (rest < 0) != (other < 0) ? rest + other : rest);
  } else {
    if (other == -1) return 0;
    const T rest = static_cast<T>(self % other);
    return static_cast<T>(rest != 0 && (rest < 0) != (other < 0) ? rest + other : rest);
  }
}

void divide_exactly(const Operands& operands) {
  compute_broadcast<float, float>(
      operands, [](float self, float other) { return canonical_nan(self / other); });
}

template <typename T>
bool has_zero(const Tensor& tensor) {
  for (uint32_t i = 0; i < tensor.numel; ++i) {
    if (tensor.as<T>()[i] == 0) return true;
  }
  return false;
}

// A bound of clamp: None is none.
template <typename T>
struct Bounds {
  T low = 0;
  T high = 0;
  bool has_low = false;
  bool has_high = false;

  Bounds(KernelContext& ctx, const Argument& min, const Argument& max)
      : has_low(!min.is_none()), has_high(!max.is_none()) {
    if (has_low) low = number_of<T>(ctx, min);
    if (has_high) high = number_of<T>(ctx, max);
    ctx.require(!is_nan(low) && !is_nan(high), "min or max is NaN");
  }

  // As ATen: `high` wins where they cross, and NaN stays.
  T apply(T value) const {
    if (has_low && value < low) value = low;
    if (has_high && value > high) value = high;
    return value;
  }
};

template <typename... Types>
void clamp_all(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument min = ctx.any("min");
  const Argument max = ctx.any("max");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  visit_dtype<Types...>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    const Bounds<T> bounds(ctx, min, max);
    if (ctx.ok()) compute_alike<T, T>(self, out, [&](T value) { return bounds.apply(value); });
  });
}

void select_items(const Tensor& condition, const Operands& operands) {
  const uint32_t size = item_size(operands.out.dtype);
  Walk<3> walk(operands.out);
  broadcast_strides(operands.self, operands.out, walk.strides(0));
  broadcast_strides(operands.other, operands.out, walk.strides(1));
  broadcast_strides(condition, operands.out, walk.strides(2));
  uint8_t* to = operands.out.data;
  for (uint32_t i = 0; i < operands.out.numel; ++i, walk.next(), to += size) {
    const bool is_self = condition.as<Bool>()[walk.at(2)] != 0;
    const uint8_t* from = is_self ? operands.self.data + size_t{walk.at(0)} * size
                                  : operands.other.data + size_t{walk.at(1)} * size;
    std::memcpy(to, from, size);
  }
}

// Is `out` of the shape that the three have together?
bool check_condition(KernelContext& ctx, const Tensor& condition, const Operands& operands) {
  const Tensor& out = operands.out;
  Strides strides[3] = {};
  bool fits = broadcast_strides(condition, out, strides[0]) &&
              broadcast_strides(operands.self, out, strides[1]) &&
              broadcast_strides(operands.other, out, strides[2]);
  for (int axis = 0; fits && axis < out.rank; ++axis) {
    fits = out.size(axis) == 1 || (strides[0][axis] | strides[1][axis] | strides[2][axis]) != 0 ||
           out.numel == 0;
  }
  return ctx.require(fits, "condition is ", condition, ", self is ", operands.self, ", other is ",
                     operands.other, ", out is ", out, ": the shapes do not broadcast") &&
         ctx.require_disjoint(out, condition, "condition") &&
         ctx.require_disjoint(out, operands.self, "self") &&
         ctx.require_disjoint(out, operands.other, "other");
}

}  // namespace

// aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out)
void add(KernelContext& ctx) { add_scaled(ctx, 1); }

// aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out)
void sub(KernelContext& ctx) { add_scaled(ctx, -1); }

// aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out)
void mul(KernelContext& ctx) {
  const Operands operands = read_operands(ctx);
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  compute_numbers(ctx, operands, [](auto self, auto other) { return self * other; });
}

// aten::div.out(Tensor self, Tensor other, *, Tensor(a!) out)
void div(KernelContext& ctx) {
  const Operands operands = {ctx.tensor("self", DType::kFloat32),
                             ctx.tensor("other", DType::kFloat32), ctx.out(DType::kFloat32)};
  if (ctx.done() && check_broadcast(ctx, operands)) divide_exactly(operands);
}

// aten::div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out)
void div_mode(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& other = ctx.tensor("other", self.dtype);
  const Argument given = ctx.any("rounding_mode");
  const Operands operands = {self, other, ctx.out(self.dtype)};
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  if (given.is_none()) {
    visit_dtype<float>(ctx, "self", self, [&](float) { divide_exactly(operands); });
    return;
  }
  const char* mode = ctx.string(given);
  const bool down = std::strcmp(mode, "floor") == 0;
  if (!ctx.ok() || !ctx.require(down || std::strcmp(mode, "trunc") == 0,
                                "rounding_mode is neither 'trunc' nor 'floor'")) {
    return;
  }
  visit_dtype<float, int32_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    if (std::is_integral_v<T> && !ctx.require(!has_zero<T>(other), "an item of other is 0")) return;
    compute_broadcast<T, T>(operands, [=](T one, T two) { return divided(one, two, down); });
  });
}

// aten::fmod.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out): of integers, as the indices
// of a roll are computed.
void fmod_scalar(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument other = ctx.any("other");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  const int32_t divisor = ctx.integer(other, INT32_MIN, INT32_MAX);
  if (!ctx.ok() || !ctx.require(divisor != 0, "other is 0")) return;
  visit_dtype<int32_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    compute_alike<T, T>(self, out, [=](T value) {
      return divisor == -1 ? T{0} : static_cast<T>(value % T{divisor});
    });
  });
}

// aten::remainder.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)
void remainder_tensor(KernelContext& ctx) {
  const Operands operands = read_operands(ctx);
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  visit_dtype<float, int32_t, int64_t>(ctx, "self", operands.self, [&](auto item) {
    using T = decltype(item);
    const bool fits = std::is_floating_point_v<T> || !has_zero<T>(operands.other);
    if (ctx.require(fits, "an item of other is 0")) {
      compute_broadcast<T, T>(operands, remainder_of<T>);
    }
  });
}

// aten::remainder.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)
void remainder_scalar(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument other = ctx.any("other");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  visit_dtype<float, int32_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    const T divisor = number_of<T>(ctx, other);
    if (!ctx.ok() || !ctx.require(std::is_floating_point_v<T> || divisor != 0, "other is 0"))
      return;
    compute_alike<T, T>(self, out, [=](T value) { return remainder_of<T>(value, divisor); });
  });
}

// aten::maximum.out(Tensor self, Tensor other, *, Tensor(a!) out)
void aten_maximum(KernelContext& ctx) {
  choose(ctx, [](auto self, auto other) { return self < other ? other : self; });
}

// aten::minimum.out(Tensor self, Tensor other, *, Tensor(a!) out)
void aten_minimum(KernelContext& ctx) {
  choose(ctx, [](auto self, auto other) { return other < self ? other : self; });
}

// aten::eq.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out), and ne, lt, le, gt, ge
void eq(KernelContext& ctx) { compare(ctx, kEqual); }
void ne(KernelContext& ctx) { compare(ctx, kLess | kGreater | kUnordered); }
void lt(KernelContext& ctx) { compare(ctx, kLess); }
void le(KernelContext& ctx) { compare(ctx, kLess | kEqual); }
void gt(KernelContext& ctx) { compare(ctx, kGreater); }
void ge(KernelContext& ctx) { compare(ctx, kGreater | kEqual); }

// aten::eq.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out), and ne, lt, le, gt, ge
void eq_scalar(KernelContext& ctx) { compare_to_number(ctx, kEqual); }
void ne_scalar(KernelContext& ctx) { compare_to_number(ctx, kLess | kGreater | kUnordered); }
void lt_scalar(KernelContext& ctx) { compare_to_number(ctx, kLess); }
void le_scalar(KernelContext& ctx) { compare_to_number(ctx, kLess | kEqual); }
void gt_scalar(KernelContext& ctx) { compare_to_number(ctx, kGreater); }
void ge_scalar(KernelContext& ctx) { compare_to_number(ctx, kGreater | kEqual); }

// aten::logical_and.out(Tensor self, Tensor other, *, Tensor(a!) out), and or, xor
void logical_and(KernelContext& ctx) { combine(ctx, 0b1000); }
void logical_or(KernelContext& ctx) { combine(ctx, 0b1110); }
void logical_xor(KernelContext& ctx) { combine(ctx, 0b0110); }

// aten::bitwise_and.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out), and or, xor
void bitwise_and(KernelContext& ctx) {
  compute_bits(ctx, [](auto self, auto other) { return self & other; });
}
void bitwise_or(KernelContext& ctx) {
  compute_bits(ctx, [](auto self, auto other) { return self | other; });
}
void bitwise_xor(KernelContext& ctx) {
  compute_bits(ctx, [](auto self, auto other) { return self ^ other; });
}

// aten::where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out)
void where(KernelContext& ctx) {
  const Tensor& condition = ctx.tensor("condition", DType::kBool);
  const Operands operands = read_operands(ctx);
  if (ctx.done() && check_condition(ctx, condition, operands)) select_items(condition, operands);
}

// aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out)
void clamp(KernelContext& ctx) { clamp_all<float, int8_t, int32_t, int64_t>(ctx); }

// aten::hardtanh.out(Tensor self, Scalar min_val=-1, Scalar max_val=1, *, Tensor(a!) out); not of
// int8, which is quantised, and the bounds are not.
void hardtanh(KernelContext& ctx) { clamp_all<float>(ctx); }

}  // namespace hil::builtin
