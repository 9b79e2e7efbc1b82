// ATen's operators that make a tensor of numbers alone.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// After done().
void fill_with(KernelContext& ctx, const Argument& value, const Tensor& out) {
  visit_dtype<float, int8_t, int32_t, int64_t, Bool>(ctx, "out", out, [&](auto item) {
    const auto number = number_of<decltype(item)>(ctx, value);
    if (ctx.ok()) fill(out, number);
  });
}

}  // namespace

// aten::full.out(SymInt[] size, Scalar fill_value, *, Tensor(a!) out)
void full(KernelContext& ctx) {
  const IntList size = ctx.int_list("size");
  const Argument fill_value = ctx.any("fill_value");
  const Tensor& out = ctx.out();
  if (!ctx.done()) return;
  if (ctx.require(has_sizes(out, size), "out is ", out, ", not of the size asked for")) {
    fill_with(ctx, fill_value, out);
  }
}

// aten::full_like.out(Tensor self, Scalar fill_value, *, MemoryFormat? memory_format=None,
//     Tensor(a!) out)
void full_like(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument fill_value = ctx.any("fill_value");
  ctx.any("memory_format");  // which the compiler has made the dim order of out of
  const Tensor& out = ctx.out();
  if (!ctx.done()) return;
  if (ctx.require(same_shape(self, out), "self is ", self, ", out is ", out,
                  ": the shapes differ")) {
    fill_with(ctx, fill_value, out);
  }
}

// aten::scalar_tensor.out(Scalar s, *, Tensor(a!) out)
void scalar_tensor(KernelContext& ctx) {
  const Argument value = ctx.any("s");
  const Tensor& out = ctx.out();
  if (!ctx.done()) return;
  if (ctx.require(out.rank == 0, "out is ", out, ", not of one item without dimensions")) {
    fill_with(ctx, value, out);
  }
}

// aten::arange.start_out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out)
void arange_start(KernelContext& ctx) {
  const double start = ctx.number("start");
  const double end = ctx.number("end");
  const double step = ctx.number("step");
  const Tensor& out = ctx.out();
  if (!ctx.done()) return;
  const double count = std::ceil((end - start) / step);
  constexpr double kLimit = 9007199254740992.0;  // integers up to here are doubles
  if (!ctx.require(out.rank == 1 && count == out.numel, "out is ", out,
                   ", not of as many items as there are steps from start to end") ||
      !ctx.require(std::fabs(start) <= kLimit && std::fabs(end) <= kLimit,
                   "start or end is beyond 2^53")) {
    return;
  }
  visit_dtype<float, int64_t>(ctx, "out", out, [&](auto item) {
    using T = decltype(item);
    for (uint32_t i = 0; i < out.numel; ++i) out.as<T>()[i] = static_cast<T>(start + i * step);
  });
}

}  // namespace hil::builtin
