// ATen's views, which ExecuTorch turns into copies, and copies with a part in its place: any dtype.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/copy_items.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

bool check_contiguous(KernelContext& ctx, const Tensor& self, const Tensor& out) {
  return ctx.require(is_row_major(self) && is_row_major(out), "self is ", self, ", out is ", out,
                     ": not contiguous") &&
         ctx.require_disjoint(out, self, "self");
}

// Part `start` to `start + (size of out - 1) * step` of dimension `axis`.
void copy_part_of(const Tensor& self, int axis, uint32_t start, uint32_t step, const Tensor& out) {
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  for (int i = 0; i < out.rank; ++i) walk.strides(0)[i] = strides[i] * (i == axis ? step : 1);
  copy_from(self, start * strides[axis], walk, out);
}

// Fills `out` with copies of `self`, whose sizes are `sizes` where it has as many dimensions.
void copy_repeatedly(const Tensor& self, const uint32_t (&sizes)[kMaxRank], const Walk<1>& inside,
                     const Tensor& out) {
  if (out.numel == 0) return;
  const uint32_t size = item_size(out.dtype);
  Strides strides = {};
  strides_of(out, strides);
  uint32_t position[kMaxRank] = {};
  uint32_t start = 0;
  for (uint32_t copy = 0; copy < out.numel / self.numel; ++copy) {
    Walk<1> walk = inside;
    for (uint32_t i = 0; i < self.numel; ++i, walk.next()) {
      copy_item(out.data, start + walk.at(0), self.data, i, size);
    }
    for (int axis = out.rank - 1; axis >= 0; --axis) {
      position[axis] += sizes[axis];
      start += sizes[axis] * strides[axis];
      if (position[axis] < out.size(axis)) break;
      start -= out.size(axis) * strides[axis];
      position[axis] = 0;
    }
  }
}

// An end of a slice: from the end if negative, and no further than the ends of the dimension.
int64_t slice_end(KernelContext& ctx, const Argument& argument, uint32_t size, int64_t absent) {
  if (argument.is_none()) return absent;
  const int64_t given = ctx.integer(argument);
  const int64_t from_start = given < 0 ? given + size : given;
  return from_start < 0 ? 0 : from_start > size ? size : from_start;
}

// A slice's items of dimension `axis`: `count` of them from `start` on, each `step`-th one.
struct Part {
  int axis = 0;
  uint32_t start = 0;
  uint32_t step = 1;
  uint32_t count = 0;
};

// (int dim, SymInt? start, SymInt? end, SymInt step), read in this order.
class Slice {
 public:
  explicit Slice(KernelContext& ctx)
      : dim_(ctx.any("dim")),
        start_(ctx.any("start")),
        end_(ctx.any("end")),
        step_(ctx.integer("step", 1, INT32_MAX)) {}

  // After done(); a failure where `self` has no such dimension.
  Part of(KernelContext& ctx, const Tensor& self) const {
    if (!ctx.require(self.rank > 0, "self is ", self, ": no dimension to slice")) return {};
    const int axis = ctx.axis(dim_, self.rank);
    const uint32_t size = self.size(axis);
    const int64_t start = slice_end(ctx, start_, size, 0);
    const int64_t end = slice_end(ctx, end_, size, size);
    const int64_t count = end > start ? (end - start - 1) / step_ + 1 : 0;
    return {axis, static_cast<uint32_t>(start), static_cast<uint32_t>(step_),
            static_cast<uint32_t>(count)};
  }

 private:
  Argument dim_;
  Argument start_;
  Argument end_;
  int32_t step_;
};

}  // namespace

// aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out)
void view_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  ctx.int_list("size");  // is that of out, with a -1 perhaps
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  if (ctx.require(self.numel == out.numel, "self is ", self, ", out is ", out,
                  ": the number of items differs") &&
      check_contiguous(ctx, self, out)) {
    std::memcpy(out.data, self.data, self.nbytes);
  }
}

// aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out)
void squeeze_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList dims = ctx.int_list("dim");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const Axes axes = axes_of(ctx, dims, self.rank);
  if (!ctx.ok()) return;
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  int to = 0;
  bool fits = true;
  for (int axis = 0; fits && axis < self.rank; ++axis) {
    if ((axes >> axis & 1) != 0 && self.size(axis) == 1) continue;
    fits = to < out.rank && out.size(to) == self.size(axis);
    if (fits) walk.strides(0)[to++] = strides[axis];
  }
  if (ctx.require(fits && to == out.rank, "self is ", self, ", out is ", out,
                  ": not self without those of its dimensions that have size 1") &&
      ctx.require_disjoint(out, self, "self")) {
    copy_from(self, 0, walk, out);
  }
}

// aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out)
void expand_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  ctx.int_list("size");  // is that of out, with some -1 perhaps
  ctx.boolean("implicit");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  Walk<1> walk(out);
  if (ctx.require(broadcast_strides(self, out, walk.strides(0)), "self is ", self, ", out is ", out,
                  ": the shape does not broadcast") &&
      ctx.require_disjoint(out, self, "self")) {
    copy_from(self, 0, walk, out);
  }
}

// aten::repeat.out(Tensor self, SymInt[] repeats, *, Tensor(a!) out)
void repeat(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList repeats = ctx.int_list("repeats");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  bool fits = repeats.size() == out.rank && out.rank >= self.rank;
  Strides strides = {};
  strides_of(out, strides);
  Walk<1> inside(self);           // a copy of self in out
  uint32_t sizes[kMaxRank] = {};  // of self, with the dimensions that it has not
  for (int axis = 0; fits && axis < out.rank; ++axis) {
    const int own = axis - (out.rank - self.rank);
    sizes[axis] = own < 0 ? 1 : self.size(own);
    const int64_t times = repeats[static_cast<uint32_t>(axis)];
    fits = times >= 0 && times <= INT32_MAX && times * sizes[axis] == out.size(axis);
    if (own >= 0) inside.strides(0)[own] = strides[axis];
  }
  if (!ctx.require(fits, "self is ", self, ", out is ", out,
                   ": not self as often as repeats says") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  copy_repeatedly(self, sizes, inside, out);
}

// aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None,
//     SymInt step=1, *, Tensor(a!) out)
void slice_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Slice slice(ctx);
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const Part part = slice.of(ctx, self);
  if (ctx.ok() &&
      ctx.require(differs_in(self, out, part.axis, part.count), "self is ", self, ", out is ", out,
                  ": the slice has ", part.count, " items of dimension ", part.axis) &&
      ctx.require_disjoint(out, self, "self")) {
    copy_part_of(self, part.axis, part.start, part.step, out);
  }
}

// aten::slice_scatter.out(Tensor self, Tensor src, int dim=0, SymInt? start=None,
//     SymInt? end=None, SymInt step=1, *, Tensor(a!) out)
void slice_scatter(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Tensor& src = ctx.tensor("src", self.dtype);
  const Slice slice(ctx);
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  const Part part = slice.of(ctx, self);
  if (ctx.ok() &&
      ctx.require(differs_in(self, src, part.axis, part.count), "self is ", self, ", src is ", src,
                  ": the slice has ", part.count, " items of dimension ", part.axis) &&
      ctx.require_disjoint(out, src, "src")) {
    copy_reordered(self, out);
    Strides strides = {};
    strides_of(out, strides);
    Walk<1> walk(src);
    for (int i = 0; i < src.rank; ++i) {
      walk.strides(0)[i] = strides[i] * (i == part.axis ? part.step : 1);
    }
    copy_to(src, walk, part.start * strides[part.axis], out);
  }
}

// aten::split_with_sizes_copy.out(Tensor self, SymInt[] split_sizes, int dim=0, *,
//     Tensor(a!)[] out)
void split_with_sizes_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList sizes = ctx.int_list("split_sizes");
  const Argument dim = ctx.any("dim");
  const TensorList out = ctx.out_list();
  if (!ctx.done() || !ctx.require(self.rank > 0, "self is ", self, ": no dimension to split") ||
      !ctx.require(sizes.size() == out.size(), "split_sizes has ", sizes.size(), " items, out ",
                   out.size())) {
    return;
  }
  const int axis = ctx.axis(dim, self.rank);
  uint64_t start = 0;
  for (uint32_t i = 0; ctx.ok() && i < out.size(); ++i) {
    const uint64_t size = out[i].rank == self.rank ? out[i].size(axis) : 0;
    if (!ctx.require(out[i].dtype == self.dtype && sizes[i] == static_cast<int64_t>(size) &&
                         differs_in(self, out[i], axis, size) && start + size <= self.size(axis),
                     "self is ", self, ", out item ", i, " is ", out[i], ": not its part of ",
                     sizes[i], " of dimension ", axis) ||
        !ctx.require_disjoint(out[i], self, "self")) {
      return;
    }
    copy_part_of(self, axis, static_cast<uint32_t>(start), 1, out[i]);
    start += size;
  }
}

// aten::flip.out(Tensor self, int[] dims, *, Tensor(a!) out)
void flip(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList dims = ctx.int_list("dims");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  const Axes axes = axes_of(ctx, dims, self.rank);
  if (!ctx.ok() || self.numel == 0) return;
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  uint32_t start = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    const bool flipped = (axes >> axis & 1) != 0;
    if (flipped) start += (self.size(axis) - 1) * strides[axis];
    walk.strides(0)[axis] = flipped ? 0 - strides[axis] : strides[axis];  // counts modulo 2^32
  }
  copy_from(self, start, walk, out);
}

// aten::as_strided_copy.out(Tensor self, SymInt[] size, SymInt[] stride,
//     SymInt? storage_offset=None, *, Tensor(a!) out): strides in items of self as it lies in
//     memory.
void as_strided_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList size = ctx.int_list("size");
  const IntList stride = ctx.int_list("stride");
  const Argument offset = ctx.any("storage_offset");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() ||
      !ctx.require(has_sizes(out, size) && stride.size() == size.size(), "out is ", out,
                   ", not of the size asked for, or stride has another number of items") ||
      !ctx.require_disjoint(out, self, "self") || out.numel == 0) {
    return;
  }
  const uint32_t start =
      offset.is_none() ? 0 : static_cast<uint32_t>(ctx.integer(offset, 0, INT32_MAX));
  if (!ctx.ok()) return;
  uint64_t last = start;
  Walk<1> walk(out);
  for (uint32_t i = 0; i < stride.size(); ++i) {
    if (!ctx.require(stride[i] >= 0 && stride[i] <= INT32_MAX, "stride item ", i, " is ",
                     stride[i])) {
      return;
    }
    last += static_cast<uint64_t>(out.sizes[i] - 1) * static_cast<uint64_t>(stride[i]);
    walk.strides(0)[i] = static_cast<uint32_t>(stride[i]);
    if (!ctx.require(last < self.numel, "self is ", self, ", and the strides reach beyond it")) {
      return;
    }
  }
  if (ctx.require(last < self.numel, "self is ", self, ", and the offset is beyond it")) {
    copy_from(self, start, walk, out);
  }
}

// aten::constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out); not of
// int8, which is quantised, and the number is not.
void constant_pad_nd(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList pad = ctx.int_list("pad");
  const Argument value = ctx.any("value");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() ||
      !ctx.require(pad.size() % 2 == 0 && pad.size() / 2 <= self.rank && out.rank == self.rank,
                   "pad has ", pad.size(), " items, self is ", self, ", out is ", out) ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  Strides strides = {};
  strides_of(out, strides);
  Walk<1> walk(self);
  strides_of(out, walk.strides(0));
  uint32_t start = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    const uint32_t item = 2 * static_cast<uint32_t>(self.rank - 1 - axis);  // from the last one
    const int64_t before = item < pad.size() ? pad[item] : 0;
    const int64_t after = item < pad.size() ? pad[item + 1] : 0;
    if (!ctx.require(before >= 0 && before <= INT32_MAX && after >= 0 && after <= INT32_MAX &&
                         self.size(axis) + before + after == out.size(axis),
                     "self is ", self, ", out is ", out, ": dimension ", axis, " is padded by ",
                     before, " and ", after)) {
      return;
    }
    start += static_cast<uint32_t>(before) * strides[axis];
  }
  visit_dtype<float, int32_t, int64_t, Bool>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    const T number = number_of<T>(ctx, value);
    if (!ctx.ok()) return;
    fill(out, number);
    for (uint32_t i = 0; i < self.numel; ++i, walk.next()) {
      out.as<T>()[start + walk.at(0)] = self.as<T>()[i];
    }
  });
}

}  // namespace hil::builtin
