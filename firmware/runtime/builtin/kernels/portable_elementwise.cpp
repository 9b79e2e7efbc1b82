// ATen's operators on one or two tensors, item by item: float32, and int8 where they only choose.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/one_nan.h"

namespace hil::builtin {
namespace {

template <typename Compute>
void compute_floats(KernelContext& ctx, const Operands& operands, const Compute& compute) {
  if (ctx.done() && check_broadcast(ctx, operands)) {
    compute_broadcast<float, float>(
        operands, [&](float self, float other) { return one_nan(compute(self, other)); });
  }
}

// Of operators with (Tensor self, Tensor other, *, Tensor(a!) out).
template <typename Compute>
void compute_floats(KernelContext& ctx, const Compute& compute) {
  const Operands operands = {ctx.tensor("self", DType::kFloat32),
                             ctx.tensor("other", DType::kFloat32), ctx.out(DType::kFloat32)};
  compute_floats(ctx, operands, compute);
}

// (Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out): `sign` times alpha times other.
void add_scaled(KernelContext& ctx, float sign) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Tensor& other = ctx.tensor("other", DType::kFloat32);
  const float alpha = sign * static_cast<float>(ctx.number("alpha"));
  const Operands operands = {self, other, ctx.out(DType::kFloat32)};
  compute_floats(ctx, operands, [=](float one, float two) { return one + alpha * two; });
}

// As ATen: NaN, where there is one. Both operands of one dtype, whose integers are compared as they
// stand.
template <typename Choose>
void choose(KernelContext& ctx, const Choose& choose_one) {
  const Tensor& self = ctx.tensor("self");
  const Operands operands = {self, ctx.tensor("other", self.dtype), ctx.out(self.dtype)};
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  if (self.dtype == DType::kFloat32) {
    compute_broadcast<float, float>(operands, [&](float one, float two) {
      return one_nan(one != one ? one : two != two ? two : choose_one(one, two));
    });
  } else if (ctx.require(self.dtype == DType::kInt8, "self is ", self,
                         ", the operator takes int8 and float32")) {
    compute_broadcast<int8_t, int8_t>(operands, choose_one);
  }
}

template <typename T>
void compare_all(const Operands& operands) {
  compute_broadcast<T, uint8_t>(operands, [](T self, T other) { return self >= other ? 1 : 0; });
}

// A bound of clamp: None is none.
template <typename T>
struct Bounds {
  T low = 0;
  T high = 0;
  bool has_low = false;
  bool has_high = false;

  // As ATen: `high` wins where they cross, and NaN stays.
  T apply(T value) const {
    if (has_low && value < low) value = low;
    if (has_high && value > high) value = high;
    return value;
  }
};

template <typename T>
void clamp_all(const Bounds<T>& bounds, const Tensor& self, const Tensor& out) {
  Walk<1> walk(out);
  strides_of(self, walk.strides(0));
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    out.as<T>()[i] = bounds.apply(self.as<T>()[walk.at(0)]);
  }
}

Bounds<float> float_bounds(KernelContext& ctx, const Argument& min, const Argument& max) {
  Bounds<float> bounds;
  bounds.has_low = !min.is_none();
  bounds.has_high = !max.is_none();
  if (bounds.has_low) bounds.low = static_cast<float>(ctx.number(min));
  if (bounds.has_high) bounds.high = static_cast<float>(ctx.number(max));
  ctx.require(!std::isnan(bounds.low) && !std::isnan(bounds.high), "min or max is NaN");
  return bounds;
}

Bounds<int8_t> int8_bounds(KernelContext& ctx, const Argument& min, const Argument& max) {
  Bounds<int8_t> bounds;
  bounds.has_low = !min.is_none();
  bounds.has_high = !max.is_none();
  if (bounds.has_low) bounds.low = static_cast<int8_t>(ctx.integer(min, INT8_MIN, INT8_MAX));
  if (bounds.has_high) bounds.high = static_cast<int8_t>(ctx.integer(max, INT8_MIN, INT8_MAX));
  return bounds;
}

}  // namespace

// aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out)
void add(KernelContext& ctx) { add_scaled(ctx, 1); }

// aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out)
void sub(KernelContext& ctx) { add_scaled(ctx, -1); }

// aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out)
void mul(KernelContext& ctx) {
  compute_floats(ctx, [](float self, float other) { return self * other; });
}

// aten::div.out(Tensor self, Tensor other, *, Tensor(a!) out)
void div(KernelContext& ctx) {
  compute_floats(ctx, [](float self, float other) { return self / other; });
}

// aten::maximum.out(Tensor self, Tensor other, *, Tensor(a!) out)
void aten_maximum(KernelContext& ctx) {
  choose(ctx, [](auto self, auto other) { return self < other ? other : self; });
}

// aten::minimum.out(Tensor self, Tensor other, *, Tensor(a!) out)
void aten_minimum(KernelContext& ctx) {
  choose(ctx, [](auto self, auto other) { return other < self ? other : self; });
}

// aten::ge.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)
void ge(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Operands operands = {self, ctx.tensor("other", self.dtype), ctx.out(DType::kBool)};
  if (!ctx.done() || !check_broadcast(ctx, operands)) return;
  if (self.dtype == DType::kFloat32) {
    compare_all<float>(operands);
  } else if (ctx.require(self.dtype == DType::kInt8, "self is ", self,
                         ", the operator takes int8 and float32")) {
    compare_all<int8_t>(operands);
  }
}

// aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out)
void clamp(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument min = ctx.any("min");
  const Argument max = ctx.any("max");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() ||
      !ctx.require(same_shape(self, out), "self is ", self, ", out is ", out,
                   ": the shapes differ") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  if (self.dtype == DType::kFloat32) {
    const Bounds<float> bounds = float_bounds(ctx, min, max);
    if (ctx.ok()) clamp_all(bounds, self, out);
  } else if (ctx.require(self.dtype == DType::kInt8, "self is ", self,
                         ", the operator takes int8 and float32")) {
    const Bounds<int8_t> bounds = int8_bounds(ctx, min, max);
    if (ctx.ok()) clamp_all(bounds, self, out);
  }
}

// aten::full.out(SymInt[] size, Scalar fill_value, *, Tensor(a!) out)
void full(KernelContext& ctx) {
  const IntList size = ctx.int_list("size");
  const Argument fill_value = ctx.any("fill_value");
  const Tensor& out = ctx.out();
  if (!ctx.done()) return;
  bool fits = size.size() == out.rank;
  for (int i = 0; fits && i < out.rank; ++i) {
    fits = size[static_cast<uint32_t>(i)] == out.sizes[i];
  }
  if (!ctx.require(fits, "out is ", out, ", not of the size asked for")) return;
  if (out.dtype == DType::kFloat32) {
    const float value = static_cast<float>(ctx.number(fill_value));
    for (uint32_t i = 0; i < out.numel; ++i) out.as<float>()[i] = value;
  } else if (ctx.require(out.dtype == DType::kInt8, "out is ", out,
                         ", the operator takes int8 and float32")) {
    const int32_t value = ctx.integer(fill_value, INT8_MIN, INT8_MAX);
    for (uint32_t i = 0; i < out.numel; ++i) out.as<int8_t>()[i] = static_cast<int8_t>(value);
  }
}

}  // namespace hil::builtin
