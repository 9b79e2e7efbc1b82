// ATen's reductions over some dimensions, or all. The items of a result are taken in logical order,
// so sums are those of ExecuTorch's portable kernels, but for the sign of a zero.
#include <limits>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// The stride of `self` for each dimension of `out`. False where the shapes do not agree.
bool kept_strides(const Tensor& self, Axes axes, bool keepdim, const Tensor& out,
                  Strides& strides) {
  Strides own = {};
  strides_of(self, own);
  int to = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    const bool reduced = (axes >> axis & 1) != 0;
    if (reduced && !keepdim) continue;
    if (to >= out.rank || out.size(to) != (reduced ? 1 : self.size(axis))) return false;
    strides[to++] = reduced ? 0 : own[axis];
  }
  return to == out.rank;
}

struct Reduction {
  const Tensor& self;
  Axes axes;
  bool keepdim;
  const Tensor& out;
};

// `empty`: is there a result of nothing?
bool check(KernelContext& ctx, const Reduction& reduction, bool empty) {
  const Tensor& self = reduction.self;
  const Tensor& out = reduction.out;
  Strides unused = {};
  return ctx.ok() &&
         ctx.require(kept_strides(self, reduction.axes, reduction.keepdim, out, unused), "self is ",
                     self, ", out is ", out, ": not what its dimensions leave") &&
         ctx.require(empty || self.numel != 0 || out.numel == 0, "self is ", self,
                     ": no item to choose") &&
         ctx.require_disjoint(out, self, "self");
}

// After check(): visit(number of an item of out, the first item of its row, the row's other places)
template <typename T, typename Visit>
void for_each_row(const Reduction& reduction, const Visit& visit) {
  const Tensor& out = reduction.out;
  const Rows rows(reduction.self, reduction.axes);
  Walk<1> walk(out);
  kept_strides(reduction.self, reduction.axes, reduction.keepdim, out, walk.strides(0));
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    visit(i, reduction.self.as<T>() + walk.at(0), rows);
  }
}

// The dimensions in `int[]? dim`; None and an empty list stand for all.
Axes axes_or_all(KernelContext& ctx, const Argument& dims, int rank) {
  const IntList list = dims.is_none() ? IntList() : ctx.int_list(dims);
  return list.size() == 0 ? all_axes(rank) : axes_of(ctx, list, rank);
}

// An `int? dim`.
Axes axis_or_all(KernelContext& ctx, const Argument& dim, int rank) {
  if (dim.is_none()) return all_axes(rank);
  return rank == 0 ? 0 : Axes{1} << ctx.axis(dim, rank);
}

// Largest and smallest

// NaN counts as more than anything, as ATen has it.
struct Larger {
  template <typename T>
  static bool wins(T value, T best) {
    return !(value <= best) && best == best;  // NOLINT(misc-redundant-expression)
  }
};
struct Smaller {
  template <typename T>
  static bool wins(T value, T best) {
    return !(value >= best) && best == best;  // NOLINT(misc-redundant-expression)
  }
};

// take(number of an item of out, the value that wins, its number in the row)
template <typename Order, typename T, typename Take>
void choose_all(const Reduction& reduction, const Take& take) {
  for_each_row<T>(reduction, [&](uint32_t item, const T* first, const Rows& rows) {
    T best = *first;
    int64_t index = 0;
    int64_t number = 0;
    rows.for_each([&](uint32_t at) {
      if (number != 0 && Order::wins(first[at], best)) {
        best = first[at];
        index = number;
      }
      ++number;
    });
    take(item, one_result(best), index);
  });
}

// (Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out)
template <typename Order>
void choose_value(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dims = ctx.any("dim");
  const bool keepdim = ctx.boolean("keepdim");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const Reduction reduction = {self, axes_or_all(ctx, dims, self.rank), keepdim, out};
  if (!check(ctx, reduction, false)) return;
  visit_dtype<float, int8_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    choose_all<Order, T>(reduction, [&](uint32_t at, T best, int64_t) { out.as<T>()[at] = best; });
  });
}

// (Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out)
template <typename Order>
void choose_index(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const bool keepdim = ctx.boolean("keepdim");
  const Tensor& out = ctx.out(DType::kInt64);
  if (!ctx.done()) return;
  const Reduction reduction = {self, axis_or_all(ctx, dim, self.rank), keepdim, out};
  if (!check(ctx, reduction, false)) return;
  visit_dtype<float, int8_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    choose_all<Order, T>(reduction,
                         [&](uint32_t at, T, int64_t index) { out.as<int64_t>()[at] = index; });
  });
}

// (Tensor self, int dim, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices)
template <typename Order>
void choose_both(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const bool keepdim = ctx.boolean("keepdim");
  const Tensor& values = ctx.out(self.dtype, "values");
  const Tensor& indices = ctx.out(DType::kInt64, "indices");
  if (!ctx.done()) return;
  const Reduction reduction = {self, axis_or_all(ctx, dim, self.rank), keepdim, values};
  if (!check(ctx, reduction, false) ||
      !ctx.require(same_shape(values, indices), "values are ", values, ", indices are ", indices,
                   ": the shapes differ") ||
      !ctx.require_disjoint(indices, self, "self") ||
      !ctx.require_disjoint(indices, values, "values")) {
    return;
  }
  visit_dtype<float, int8_t, int64_t>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    Walk<1> walk(values);
    strides_of(indices, walk.strides(0));
    choose_all<Order, T>(reduction, [&](uint32_t at, T best, int64_t index) {
      values.as<T>()[at] = best;
      indices.as<int64_t>()[walk.at(0)] = index;
      walk.next();
    });
  });
}

// Sums

template <typename T>
T sum_of(const T* first, const Rows& rows) {
  T sum = 0;
  rows.for_each([&](uint32_t at) {
    if constexpr (std::is_floating_point_v<T>) {
      sum += first[at];
    } else {
      sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(first[at]));
    }
  });
  return sum;
}

// (Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out)
void read_sum(KernelContext& ctx, bool is_mean) {
  const Tensor& self = ctx.tensor("self");
  const Argument dims = ctx.any("dim");
  const bool keepdim = ctx.boolean("keepdim");
  ctx.any("dtype");  // is that of out
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const Reduction reduction = {self, axes_or_all(ctx, dims, self.rank), keepdim, out};
  if (!check(ctx, reduction, true)) return;
  if (is_mean) {
    visit_dtype<float>(ctx, "self", self, [&](auto) {
      for_each_row<float>(reduction, [&](uint32_t item, const float* first, const Rows& rows) {
        out.as<float>()[item] =
            canonical_nan(sum_of(first, rows) / static_cast<float>(rows.count()));
      });
    });
    return;
  }
  visit_dtype<float, int64_t>(ctx, "self", self, [&](auto tag) {
    using T = decltype(tag);
    for_each_row<T>(reduction, [&](uint32_t item, const T* first, const Rows& rows) {
      out.as<T>()[item] = one_result(sum_of(first, rows));
    });
  });
}

float variance_of(const float* first, const Rows& rows, double divisor) {
  if (rows.count() == 0 || divisor <= 0) return std::numeric_limits<float>::quiet_NaN();
  const float mean = sum_of(first, rows) / static_cast<float>(rows.count());
  float sum = 0;
  rows.for_each([&](uint32_t at) { sum += (first[at] - mean) * (first[at] - mean); });
  return canonical_nan(static_cast<float>(sum / divisor));
}

}  // namespace

// aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out), and amin
void amax(KernelContext& ctx) { choose_value<Larger>(ctx); }
void amin(KernelContext& ctx) { choose_value<Smaller>(ctx); }

// aten::argmax.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out), and argmin
void argmax(KernelContext& ctx) { choose_index<Larger>(ctx); }
void argmin(KernelContext& ctx) { choose_index<Smaller>(ctx); }

// aten::max.dim_max(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) max,
//     Tensor(b!) max_values), and min
void max_dim(KernelContext& ctx) { choose_both<Larger>(ctx); }
void min_dim(KernelContext& ctx) { choose_both<Smaller>(ctx); }

// aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None,
//     Tensor(a!) out), and mean
void sum(KernelContext& ctx) { read_sum(ctx, false); }
void mean(KernelContext& ctx) { read_sum(ctx, true); }

// aten::var.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None,
//     bool keepdim=False, Tensor(a!) out)
void var_correction(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Argument dims = ctx.any("dim");
  const Argument given = ctx.any("correction");
  const bool keepdim = ctx.boolean("keepdim");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return;
  const double correction = given.is_none() ? 1.0 : ctx.number(given);
  const Reduction reduction = {self, axes_or_all(ctx, dims, self.rank), keepdim, out};
  if (!check(ctx, reduction, true)) return;
  for_each_row<float>(reduction, [&](uint32_t item, const float* first, const Rows& rows) {
    out.as<float>()[item] = variance_of(first, rows, rows.count() - correction);
  });
}

// aten::any.out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out)
void any(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kBool);
  const Argument dim = ctx.any("dim");
  const bool keepdim = ctx.boolean("keepdim");
  const Tensor& out = ctx.out(DType::kBool);
  if (!ctx.done()) return;
  const Reduction reduction = {self, axis_or_all(ctx, dim, self.rank), keepdim, out};
  if (!check(ctx, reduction, true)) return;
  for_each_row<Bool>(reduction, [&](uint32_t item, const Bool* first, const Rows& rows) {
    bool found = false;
    rows.for_each([&](uint32_t at) { found = found || first[at] != 0; });
    out.as<Bool>()[item] = found ? 1 : 0;
  });
}

// aten::cumsum.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out)
void cumsum(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Argument dim = ctx.any("dim");
  ctx.any("dtype");  // is that of out
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !ctx.require(self.rank > 0, "self is ", self, ": no dimension to sum along")) {
    return;
  }
  const int axis = ctx.axis(dim, self.rank);
  if (!ctx.ok() || !check_alike(ctx, self, out)) return;
  Strides strides = {};
  strides_of(out, strides);
  Walk<2> walk(out);  // which passes an item's predecessors before it
  strides_of(self, walk.strides(0));
  walk.strides(1)[axis] = 1;
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    const float value = self.as<float>()[walk.at(0)];
    const bool is_first = walk.at(1) == 0;
    out.as<float>()[i] =
        canonical_nan(is_first ? value : value + out.as<float>()[i - strides[axis]]);
  }
}

}  // namespace hil::builtin
