// Copies of any dtype: all, a part or many of them, perhaps in another order in memory.
#include <cstring>
#include <limits>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/copy_items.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {

void copy_from(const Tensor& from, uint32_t start, Walk<1>& walk, const Tensor& to) {
  const uint32_t size = item_size(to.dtype);
  for (uint32_t i = 0; i < to.numel; ++i, walk.next()) {
    copy_item(to.data, i, from.data, start + walk.at(0), size);
  }
}

void copy_to(const Tensor& from, Walk<1>& walk, uint32_t start, const Tensor& to) {
  const uint32_t size = item_size(to.dtype);
  for (uint32_t i = 0; i < from.numel; ++i, walk.next()) {
    copy_item(to.data, start + walk.at(0), from.data, i, size);
  }
}

void copy_reordered(const Tensor& from, const Tensor& to) {
  Walk<1> walk(to);
  strides_of(from, walk.strides(0));
  copy_from(from, 0, walk, to);
}

bool differs_in(const Tensor& self, const Tensor& out, int axis, uint64_t size) {
  bool same = out.rank == self.rank;
  for (int i = 0; same && i < out.rank; ++i) {
    same = out.size(i) == (i == axis ? size : self.size(i));
  }
  return same;
}

namespace {

// Is `longer`, without its dimension `axis`, of the shape of `shorter`?
bool differs_by_axis(const Tensor& longer, const Tensor& shorter, int axis) {
  if (longer.rank != shorter.rank + 1) return false;
  for (int i = 0; i < shorter.rank; ++i) {
    if (longer.size(i < axis ? i : i + 1) != shorter.size(i)) return false;
  }
  return true;
}

// Does `out` lie as a tensor of the dim order `wanted` would? Where a dimension has size 1, the
// compiler may say two orders of the same bytes.
bool check_dim_order(KernelContext& ctx, const IntList& wanted, const Tensor& out) {
  if (!ctx.ok() || !ctx.require(wanted.size() == out.rank, "dim_order has ", wanted.size(),
                                " items, out is ", out)) {
    return false;
  }
  Axes seen = 0;
  uint8_t order[kMaxRank] = {};
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    if (!ctx.require(wanted[i] >= 0 && wanted[i] < out.rank && (seen >> wanted[i] & 1) == 0,
                     "dim_order item ", i, " is ", wanted[i], ": no dimension of out, which is ",
                     out, ", or one twice")) {
      return false;
    }
    seen |= Axes{1} << wanted[i];
    order[i] = static_cast<uint8_t>(wanted[i]);
  }
  Tensor asked = out;
  asked.dim_order = order;
  return ctx.require(same_layout(asked, out), "out is ", out, ", not in the dim order asked for");
}

// Dimension `axis` of out is dimension dims[axis] of self, counted from the end if negative.
bool permuted_strides(KernelContext& ctx, const Tensor& self, const IntList& dims,
                      const Tensor& out, Strides& strides) {
  if (!ctx.require(dims.size() == self.rank && out.rank == self.rank, "dims has ", dims.size(),
                   " items, self is ", self, ", out is ", out, ": one item a dimension needed")) {
    return false;
  }
  Strides own = {};
  strides_of(self, own);
  uint32_t seen = 0;
  for (int axis = 0; axis < out.rank; ++axis) {
    const int64_t item = dims[static_cast<uint32_t>(axis)];
    const int64_t from = item < 0 ? item + self.rank : item;
    if (!ctx.require(from >= 0 && from < self.rank && (seen >> from & 1) == 0, "dims item ", axis,
                     " is ", item, ": no permutation of the dimensions of ", self) ||
        !ctx.require(out.size(axis) == self.size(static_cast<int>(from)), "self is ", self,
                     ", out is ", out, ": dimension ", axis, " of out is not dimension ", from,
                     " of self")) {
      return false;
    }
    seen |= 1u << from;
    strides[axis] = own[from];
  }
  return true;
}

// Concatenation

bool check_part(KernelContext& ctx, const Tensor& part, uint32_t number, int axis,
                const Tensor& out) {
  bool fits = part.rank == out.rank && part.dtype == out.dtype;
  for (int i = 0; fits && i < out.rank; ++i) fits = i == axis || part.size(i) == out.size(i);
  return ctx.require(fits, "tensors item ", number, " is ", part, ", out is ", out,
                     ": they may differ in dimension ", axis, " only") &&
         ctx.require_disjoint(out, part, "an item of tensors");
}

bool check_parts(KernelContext& ctx, const TensorList& parts, int axis, const Tensor& out) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    if (!check_part(ctx, parts[i], i, axis, out)) return false;
    size += parts[i].size(axis);
  }
  return ctx.require(size == out.size(axis), "out is ", out, ", the sizes of tensors in dimension ",
                     axis, " make ", size);
}

void copy_part(const Tensor& part, const Tensor& out, uint32_t start) {
  Walk<1> walk(part);
  strides_of(out, walk.strides(0));
  copy_to(part, walk, start, out);
}

// Numbers

// Towards zero, and to the nearest end of what an integer holds; NaN to 0.
template <typename To, typename From>
To converted(From value) {
  if constexpr (std::is_same_v<To, Bool>) {
    return value != 0 ? 1 : 0;
  } else if constexpr (std::is_floating_point_v<To>) {
    return one_result(static_cast<To>(value));
  } else if constexpr (std::is_floating_point_v<From>) {
    constexpr float kEnd = sizeof(To) == sizeof(int64_t) ? 9223372036854775808.0f : 2147483648.0f;
    if (is_nan(value)) return 0;
    if (value >= kEnd) return std::numeric_limits<To>::max();
    return value < -kEnd ? std::numeric_limits<To>::min() : static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

void convert(KernelContext& ctx, const Tensor& self, const Tensor& out) {
  Tensor read = self;
  if (read.dtype == DType::kUint8) read.dtype = DType::kBool;  // both are read as a byte
  visit_dtype<float, int16_t, int32_t, int64_t, Bool>(ctx, "self", read, [&](auto from) {
    visit_dtype<float, int32_t, int64_t, Bool>(ctx, "out", out, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      compute_alike<From, To>(read, out, [](From value) { return converted<To>(value); });
    });
  });
}

}  // namespace

// dim_order_ops::_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False,
//     int[]? dim_order=None, Tensor(a!) out)
void to_dim_order_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const bool non_blocking = ctx.boolean("non_blocking");
  const Argument dim_order = ctx.any("dim_order");
  const Tensor& out = ctx.out();
  if (!ctx.done() || !check_alike(ctx, self, out) ||
      !ctx.require(!non_blocking, "non_blocking is True: only blocking copies exist here") ||
      (!dim_order.is_none() && !check_dim_order(ctx, ctx.int_list(dim_order), out))) {
    return;
  }
  if (self.dtype == out.dtype) {
    copy_reordered(self, out);
  } else {
    convert(ctx, self, out);
  }
}

// dim_order_ops::_clone_dim_order.out(Tensor self, *, bool non_blocking=False,
//     int[]? dim_order=None, Tensor(a!) out)
void clone_dim_order(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const bool non_blocking = ctx.boolean("non_blocking");
  const Argument dim_order = ctx.any("dim_order");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  if (!ctx.require(!non_blocking, "non_blocking is True: only blocking copies exist here") ||
      !ctx.require(same_shape(self, out), "self is ", self, ", out is ", out,
                   ": the shapes differ") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  if (!dim_order.is_none() && !check_dim_order(ctx, ctx.int_list(dim_order), out)) return;
  if (same_dim_order(self, out)) {
    std::memcpy(out.data, self.data, self.nbytes);
  } else {
    copy_reordered(self, out);
  }
}

// aten::cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out)
void cat(KernelContext& ctx) {
  const TensorList parts = ctx.tensor_list("tensors");
  const Argument dim = ctx.any("dim");
  const Tensor& out = ctx.out();
  if (!ctx.done()) return;
  const int axis = ctx.axis(dim, out.rank);
  if (!ctx.ok() || !check_parts(ctx, parts, axis, out)) return;
  Strides strides = {};
  strides_of(out, strides);
  uint32_t start = 0;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    copy_part(parts[i], out, start);
    start += parts[i].size(axis) * strides[axis];
  }
}

// aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)
// Programs keep their state by it: the computed values are copied over the old ones.
void copy_in_place(KernelContext& ctx) {
  const Tensor& self = ctx.out("self");
  const Tensor& src = ctx.tensor("src", self.dtype);
  const bool non_blocking = ctx.boolean("non_blocking");
  if (!ctx.done()) return;
  if (!ctx.require(!non_blocking, "non_blocking is True: only blocking copies exist here") ||
      !ctx.require(same_shape(self, src), "self is ", self, ", src is ", src,
                   ": the shapes differ") ||
      !ctx.require_disjoint(self, src, "src")) {
    return;
  }
  if (same_dim_order(self, src)) {
    std::memcpy(self.data, src.data, self.nbytes);
  } else {
    copy_reordered(src, self);
  }
}

// aten::copy.out(Tensor self, Tensor src, bool non_blocking=False, *, Tensor(a!) out)
// Copies src in the shape of self, for a write to a part of a tensor that forward changes.
void copy_out(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& src = ctx.tensor("src", self.dtype);
  const bool non_blocking = ctx.boolean("non_blocking");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  Walk<1> walk(out);
  if (ctx.require(!non_blocking, "non_blocking is True: only blocking copies exist here") &&
      ctx.require(same_shape(self, out) && broadcast_strides(src, out, walk.strides(0)), "self is ",
                  self, ", src is ", src, ", out is ", out,
                  ": src does not broadcast to self, or out has another shape") &&
      ctx.require_disjoint(out, src, "src")) {
    copy_from(src, 0, walk, out);
  }
}

// aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out)
void permute_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList dims = ctx.int_list("dims");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  Walk<1> walk(out);
  if (permuted_strides(ctx, self, dims, out, walk.strides(0)) &&
      ctx.require_disjoint(out, self, "self")) {
    copy_from(self, 0, walk, out);
  }
}

// aten::select_copy.int_out(Tensor self, int dim, SymInt index, *, Tensor(a!) out)
void select_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Argument item = ctx.any("index");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const int axis = ctx.axis(dim, self.rank);
  if (!ctx.ok()) return;
  const int index = ctx.axis(item, static_cast<int>(self.size(axis)));
  if (!ctx.ok() ||
      !ctx.require(differs_by_axis(self, out, axis), "self is ", self, ", out is ", out,
                   ": not self without dimension ", axis) ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  for (int i = 0; i < out.rank; ++i) walk.strides(0)[i] = strides[i < axis ? i : i + 1];
  copy_from(self, static_cast<uint32_t>(index) * strides[axis], walk, out);
}

// aten::unsqueeze_copy.out(Tensor self, int dim, *, Tensor(a!) out)
void unsqueeze_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const int axis = ctx.axis(dim, self.rank + 1);
  if (!ctx.ok() ||
      !ctx.require(differs_by_axis(out, self, axis) && out.size(axis) == 1, "self is ", self,
                   ", out is ", out, ": not self with a dimension ", axis, " of size 1") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  for (int i = 0; i < self.rank; ++i) walk.strides(0)[i < axis ? i : i + 1] = strides[i];
  copy_from(self, 0, walk, out);
}

}  // namespace hil::builtin
